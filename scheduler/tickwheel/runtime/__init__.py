"""Processes, threads, logs and clocks: code that every process of Tickwheel can use.

Outside this package, these modules import nothing of Tickwheel except `errors`. So every other package may import them.

    child_process.py  ChildProcess: a child that is restarted if it dies, and ends with this program
    python_command.py  the command of a child process that runs a module of Tickwheel
    process_guard.py  ProcessGuard: the rejection of calls on a closed or forked client
    open_failure.py   OpenFailure: the error of a failed attempt to open a client, for the callers that waited for it
    forked_child.py   the end of a forked child that runs on into code of its parent
    loopback.py       addresses that only this machine can reach
    event_loop.py     helpers for asyncio: threads, cancellation, the log of the event loop, and its check
    signals.py        signal handlers that run in a thread, and the names of signals
    shared_memory.py  memory that a process shares with its children
    wake_pipe.py      WakePipe: a pipe that wakes a thread that polls sockets
    backoff.py        exponential back-off with jitter
    time.py           the monotonic clock and the wall clock, in ms
    gc_freeze.py      garbage collection of fewer objects, and less often
    log_format.py     log lines on stderr, as text or JSON
    log_batch.py      several log lines in one call
    text_escape.py    text without control characters, for terminals and logs
    log_fields.py     machine-readable fields of log lines
    log_throttle.py   LogThrottle: a limit of repeated log lines
    text_file.py      UTF-8 files that users write
    foreign_data.py   JSON and TOML that another program may have written
    private_file.py   files and folders that no other user can change
    secret_file.py    files with secrets, such as tokens and passwords, that an administrator writes
    chunks.py         chunks of lists
    extras.py         how to install an extra, for errors about missing packages
"""
