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


def main() -> None:
    """Run the command that the program's arguments say."""
    # Not before: processes that want a single file of these start in half the time without all commands.
    from tickwheel.cli import app

    app.main()
