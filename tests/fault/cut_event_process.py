"""An event process that, while the file CUT exists, cannot connect to the port CUT_PORT, and whose connections end."""

import os
from pathlib import Path
from typing import Any

from redis.connection import Connection

from tickwheel.event_process.main import main

PORT, CUT = int(os.environ["CUT_PORT"]), Path(os.environ["CUT"])
_connect: Any = Connection._connect
_send: Any = Connection.send_packed_command


def check(connection: Any) -> None:
    if connection.port == PORT and CUT.exists():
        raise ConnectionError("no route to host")


def connect(connection: Any) -> Any:
    check(connection)
    return _connect(connection)


def send(connection: Any, *args: Any, **options: Any) -> Any:
    check(connection)
    return _send(connection, *args, **options)


if __name__ == "__main__":
    setattr(Connection, "_connect", connect)  # noqa: B010
    setattr(Connection, "send_packed_command", send)  # noqa: B010
    main()
