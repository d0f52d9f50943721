"""Detects connection errors that a retry cannot fix: TLS on one side only, or a rejected certificate.

If the client rejects a certificate, the grpc library reports the reason. If the other side closes the connection
and gives no reason, the probe opens a TLS connection without the library. A service that is restarting does not accept
this connection, so a restart is not mistaken for a TLS error.
"""

import socket
import ssl
import time
from typing import Final

from tickwheel.errors import HandshakeFailed
from tickwheel.rpc.url import GrpcUrl

_PROBE_TIMEOUT_S: Final = 2.0
# The minimum time between two probes.
_PAUSE_S: Final = 2.0
_CONNECT_FAILED: Final = "failed to connect to all addresses"
_HUNG_UP: Final = ("Socket closed", "reset by peer")
# Part of the library's error, and the text that explains it: {0} is the library's reason, {host} the host of the URL.
_TLS_FAILURES: Final = (
    (
        "CERTIFICATE_VERIFY_FAILED: ",
        "this client does not trust the server's certificate ({0}): set tls_ca in the url to the file of the"
        " certificate authority to trust",
    ),
    (
        "Hostname Verification Check failed",
        "the server's certificate is not valid for {host}: use a host that the certificate names",
    ),
    (
        "is not in peer certificate",
        "the server's certificate is not valid for {host}: use a host that the certificate names",
    ),
    ("WRONG_VERSION_NUMBER", "the server does not use TLS: if this is intended, use grpc:// instead of grpcs://"),
)


class HandshakeProbe:
    """The probe of one client."""

    def __init__(self, url: GrpcUrl, display_url: str) -> None:
        self._url = url
        self._display_url = display_url
        self._answered = False
        self._probed_at = -_PAUSE_S

    def should_probe(self, details: str) -> bool:
        """Return whether `probe_tls` could find the reason for the library's error. True at most once every 2 s."""
        hung_up = details.startswith(_CONNECT_FAILED) and any(part in details for part in _HUNG_UP)
        if self._answered or not hung_up or time.monotonic() - self._probed_at < _PAUSE_S:
            return False
        self._probed_at = time.monotonic()
        return True

    def record_success(self) -> None:
        """Record an answered call. From now on, a closed connection means that the service stops, not a TLS error."""
        self._answered = True

    def permanent_error(self, details: str) -> HandshakeFailed | None:
        """Return the error if the library's error text names a reason that a retry cannot fix, else None."""
        if not details.startswith(_CONNECT_FAILED):
            return None
        for part, means in _TLS_FAILURES:
            _, matched, rest = details.partition(part)
            if matched:
                host = self._url.target.rpartition(":")[0]
                return self._error(means.format(rest.partition(":")[0], host=host))
        return None

    def probe_tls(self) -> HandshakeFailed | None:
        """Open a TLS connection. Return an error if the service closes connections because of TLS, else None.

        Each step (connection, handshake, first byte) can block for up to 2 s.
        """
        host, port = self._url.host, self._url.target.rpartition(":")[2]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # The probe sends no secret, so it need not check the certificate.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        try:
            if self._url.tls_cert is not None:
                context.load_cert_chain(self._url.tls_cert, self._url.tls_key)
            with (
                socket.create_connection((host, int(port)), _PROBE_TIMEOUT_S) as plain,
                context.wrap_socket(plain, server_hostname=host) as encrypted,
            ):
                if not self._url.encrypted:
                    return self._error("the server uses TLS: use grpcs:// instead of grpc://")
                hung_up = _is_closed_by_peer(encrypted)
        except (OSError, ValueError):
            return None
        if not hung_up:
            return None
        return self._error(
            "the server requires a client certificate, and "
            + (
                "rejects the one in tls_cert: use a certificate of an authority that the server trusts"
                if self._url.tls_cert
                else "the url has none: set tls_cert and tls_key"
            )
        )

    def _error(self, text: str) -> HandshakeFailed:
        return HandshakeFailed(f"no connection to {self._display_url}: {text}; nothing was sent")


def _is_closed_by_peer(encrypted: ssl.SSLSocket) -> bool:
    try:
        # An HTTP/2 server sends its settings first.
        return encrypted.recv(1) == b""
    except ssl.SSLError:
        return True
