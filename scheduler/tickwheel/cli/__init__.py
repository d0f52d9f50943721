"""The command line, `tickwheel`: one file for each group of commands.

app         the groups, put together; `main`
command     what every command has: the options --url, --data-dir, --namespace, --timeout, --json
place       what those options say, and the client that is opened there
failures    exit codes, and the one line on stderr that goes with them
streams     standard input and output, closed ones included
notation    how durations, times and pairs are written
output      JSON and tables
jsonl       messages as JSON lines
"""

from tickwheel.cli.app import main

__all__ = ["main"]
