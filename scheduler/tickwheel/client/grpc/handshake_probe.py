"""Why a client and a service get no further than hello, where that can be known: to try again would not help then.

The library tells of a certificate that the client refuses. Where the other side has hung up without a word, it is asked
once more, without the library, whether it speaks TLS: a server that is starting again does not answer that.
"""

import socket
import ssl
import time
from typing import Final

from tickwheel.errors import HandshakeFailed
from tickwheel.rpc.url import GrpcUrl

_PROBE_TIMEOUT_S: Final = 2.0
# Before it is asked again.
_PAUSE_S: Final = 2.0
_CONNECT_FAILED: Final = "failed to connect to all addresses"
_HUNG_UP: Final = ("Socket closed", "reset by peer")
# What the library says, and what is to do.
_TLS_FAILURES: Final = (
    (
        "CERTIFICATE_VERIFY_FAILED: ",
        "this client does not trust the certificate that is shown there ({0}): tls_ca in the url names the file of the"
        " authorities to trust",
    ),
    (
        "Hostname Verification Check failed",
        "the certificate that is shown there is not for {host}: the host in the url must be one that it names",
    ),
    (
        "is not in peer certificate",
        "the certificate that is shown there is not for {host}: the host in the url must be one that it names",
    ),
    ("WRONG_VERSION_NUMBER", "nobody speaks TLS there: if that is as it should be, the url is grpc://, not grpcs://"),
)


class HandshakeProbe:
    """Of one client."""

    def __init__(self, url: GrpcUrl, display_url: str) -> None:
        self._url = url
        self._display_url = display_url
        self._answered = False
        self._probed_at = -_PAUSE_S

    def should_probe(self, details: str) -> bool:
        """Whether `probe_tls` may find out more than the library says. Now and then: it takes a connection."""
        hung_up = details.startswith(_CONNECT_FAILED) and any(part in details for part in _HUNG_UP)
        if self._answered or not hung_up or time.monotonic() - self._probed_at < _PAUSE_S:
            return False
        self._probed_at = time.monotonic()
        return True

    def record_success(self) -> None:
        """A call was: from now on whoever hangs up is a server that ends."""
        self._answered = True

    def permanent_error(self, details: str) -> HandshakeFailed | None:
        """The error of what the library says of an attempt, where it can be known to be for good."""
        if not details.startswith(_CONNECT_FAILED):
            return None
        for part, means in _TLS_FAILURES:
            _, matched, rest = details.partition(part)
            if matched:
                host = self._url.target.rpartition(":")[0]
                return self._error(means.format(rest.partition(":")[0], host=host))
        return None

    def probe_tls(self) -> HandshakeFailed | None:
        """Whether it is about TLS that the other side hangs up. Blocks, for up to 2 s."""
        host, _, port = self._url.target.rpartition(":")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Nothing is sent that is secret.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        try:
            if self._url.tls_cert is not None:
                context.load_cert_chain(self._url.tls_cert, self._url.tls_key)
            with (
                socket.create_connection((host.strip("[]"), int(port)), _PROBE_TIMEOUT_S) as plain,
                context.wrap_socket(plain, server_hostname=host.strip("[]")) as encrypted,
            ):
                if not self._url.encrypted:
                    return self._error("TLS is spoken there: the url is grpcs://, not grpc://")
                hung_up = _is_closed_by_peer(encrypted)
        except (OSError, ValueError):
            return None
        if not hung_up:
            return None
        return self._error(
            "the connection is ended after the certificates: a client's own is asked for there, and "
            + ("the one of tls_cert is refused" if self._url.tls_cert else "tls_cert and tls_key in the url give it")
        )

    def _error(self, text: str) -> HandshakeFailed:
        return HandshakeFailed(f"{self._display_url} cannot be talked to: {text}; nothing was sent")


def _is_closed_by_peer(encrypted: ssl.SSLSocket) -> bool:
    try:
        # A server speaks first: its settings.
        return encrypted.recv(1) == b""
    except ssl.SSLError:
        return True
