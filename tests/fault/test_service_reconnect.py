"""After a long outage of the service, a client reconnects within a second, so that it can extend its leases."""

import socket
import threading
from datetime import timedelta

import pytest

from tests.support.wait_until import eventually
from tickwheel import Tickwheel, TickwheelError

pytestmark = pytest.mark.fault

# The first bytes that the gRPC library sends. Connections that only probe the protocol of the server do not count.
HTTP2 = b"PRI * HTTP/2.0"


def test_a_client_tries_to_reach_an_unavailable_service_every_second() -> None:
    """By default, the library would try after 1 s, 1.6 s, 2.6 s and so on, up to two minutes."""
    tries: list[None] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(5)
                    if connection.recv(len(HTTP2), socket.MSG_WAITALL) == HTTP2:
                        tries.append(None)

        def call() -> None:
            with pytest.raises(TickwheelError):
                Tickwheel(f"grpc://127.0.0.1:{listening.getsockname()[1]}", timeout=timedelta(seconds=30))

        for work in (hang_up, call):
            threading.Thread(target=work, daemon=True).start()
        eventually(lambda: len(tries) >= 12, "the client tried twelve times", 20)
