"""The command line, `tickwheel`.

Each command is a file in `commands/`. The other files are shared: options, input, output, errors. A command parses its
options, calls the public client, and prints the result on standard output. It reports an error in one line on standard
error, and exits with a documented code. With --json, the output is meant for programs, and its keys are stable. The
rules of queues are in the client and in the scripts, not here.

app.py                the program: its options, and the panels of its help; `main`
lazy_commands.py      the commands, each of which is imported when it is used
imports.py            Ctrl-C and the garbage collection while a command starts
command.py            the decorator of every command, and the options that all commands have
command_help.py       the classes of commands, and their help without the options that all commands have
target.py             the server and namespace that a command works on, also of an app (--app), and its client
arguments.py          arguments that name a queue, a message or a lease
parameter_types.py    parsers of durations, times, pairs and tokens
parameter_values.py   the conversion of arguments and options, without pydantic if possible
completion.py         values that the shell completes
confirmation.py       the question before a command that removes data
exit_codes.py         exit codes, and the error line
option_names.py       errors in the words of the command line
standard_streams.py   standard input and output, even if a shell has closed them
output.py             JSON, and formats of values for people
tables.py             tables for people
message_tables.py     times and states of messages in tables
message_output.py     the line for a message that changed its state
json_lines.py         messages as JSON lines
enqueue_file.py       enqueue of a file in batches
leased_messages.py    settling of leased messages, from arguments or from standard input
listen_address.py     addresses of listening sockets
metrics_option.py     the option --metrics
watch_option.py       the option --watch
service_process.py    one process of the gRPC service
grpc_log.py           the lines that the C library of gRPC writes to stderr
drive_option.py       the options that decide whether a worker or a service drives
kafka_options.py      the options for Kafka that several commands share
driver_warning.py     warnings that no event process drives the namespace, and that messages are overdue
removal_progress.py   removal of messages or keys, with its progress
load_progress.py      progress and tables of `tickwheel load`
scratch_namespace.py  deletion of the temporary namespace of demo and load
commands/             the commands
"""

import gc
import sys

from tickwheel.cli.imports import while_importing
from tickwheel.client.exit_codes import ExitCode


def main() -> None:
    """Run the command line of this process. Ctrl-C ends the process with exit code 130, and without a traceback."""
    try:
        with while_importing():
            # Imported here: otherwise a program that imports one module of this package would import the whole program
            # as well, and take longer to start.
            from tickwheel.cli import app

            gc.freeze()
        app.main()
    except KeyboardInterrupt:
        # Outside the function of a command, for example while the arguments are parsed.
        sys.exit(ExitCode.INTERRUPTED)
