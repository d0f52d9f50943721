"""The lines that the C library of gRPC writes to stderr, next to the log and the errors of a command."""

import os


def silence_grpc() -> None:
    """Stop the library from writing lines of its own, unless the environment variable GRPC_VERBOSITY is set.

    Strangers can cause any number of these lines, for example with compressed requests, and they are not JSON. The
    library reads the variable when it is imported.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
