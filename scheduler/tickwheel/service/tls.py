"""TLS credentials of the server: its certificate, and the authority for certificates of clients."""

import ssl
from pathlib import Path

import grpc

from tickwheel.errors import InvalidArgument


def credentials(cert: Path | None, key: Path | None, client_ca: Path | None) -> grpc.ServerCredentials | None:
    """Return the credentials, or None without any file: connections are then not encrypted. With ``client_ca``,
    clients must present a certificate of that authority.

    Raises InvalidArgument if a file is missing or is not usable for TLS.
    """
    _check_certificate(cert, key, client_ca)
    if cert is None or key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password=lambda: "")
        if client_ca is not None:
            context.load_verify_locations(client_ca)
    except (OSError, ValueError) as error:
        files = ", ".join(str(file) for file in (cert, key, client_ca) if file is not None)
        raise InvalidArgument(f"TLS cannot be served with {files}: {error}") from error
    authorities = None if client_ca is None else client_ca.read_bytes()
    pair = [(key.read_bytes(), cert.read_bytes())]
    return grpc.ssl_server_credentials(pair, authorities, require_client_auth=authorities is not None)


def _check_certificate(cert: Path | None, key: Path | None, client_ca: Path | None) -> None:
    """Raise InvalidArgument for a certificate without its key, a key without its certificate, or only ``client_ca``."""
    if cert is None and key is None:
        if client_ca is not None:
            raise InvalidArgument("--tls-client-ca works only with TLS: it needs --tls-cert and --tls-key")
    elif cert is None or key is None:
        raise InvalidArgument("give both --tls-cert and --tls-key: a certificate needs its private key")
