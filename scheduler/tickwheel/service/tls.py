"""TLS credentials of the server: its certificate, and the authority (CA) of the clients' certificates."""

import ssl
from pathlib import Path

import grpc

from tickwheel.errors import InvalidArgument
from tickwheel.service.startup_checks import check_certificate


def credentials(cert: Path | None, key: Path | None, client_ca: Path | None) -> grpc.ServerCredentials | None:
    """Return the credentials, or None if all files are None: connections are then not encrypted. With ``client_ca``,
    clients must present a certificate of this authority.

    Raises InvalidArgument if a file is missing or is not usable for TLS.
    """
    check_certificate(cert, key, client_ca)
    if cert is None or key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password=lambda: "")
        if client_ca is not None:
            context.load_verify_locations(client_ca)
    except (OSError, ValueError) as error:
        files = ", ".join(str(file) for file in (cert, key, client_ca) if file is not None)
        raise InvalidArgument(f"TLS cannot be used with {files}: {error}") from error
    authorities = None if client_ca is None else client_ca.read_bytes()
    pair = [(key.read_bytes(), cert.read_bytes())]
    return grpc.ssl_server_credentials(pair, authorities, require_client_auth=authorities is not None)
