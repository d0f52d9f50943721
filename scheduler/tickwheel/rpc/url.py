"""The URL of a server of this product: where it listens, how it is known to be the one, and who calls.

grpc://host:port, grpc://:TOKEN@host:port, and with TLS grpcs://[:TOKEN@]host:port?tls_ca=FILE&tls_cert=FILE&tls_key=FILE
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from tickwheel.errors import InvalidArgument

SCHEMES: Final = ("grpc", "grpcs")
_FILES: Final = ("tls_ca", "tls_cert", "tls_key")
_USAGE: Final = (
    "the url of a server of this product is grpc://host:port or, with TLS, grpcs://host:port?tls_ca=FILE; a token"
    " stands before the host, as grpc://:TOKEN@host:port"
)


@dataclass(frozen=True, slots=True)
class GrpcUrl:
    """What it says. ``tls_ca`` are the authorities that the server's certificate is checked by (by default those of
    the system), ``tls_cert`` and ``tls_key`` this client's own certificate, where the server asks for one.
    """

    target: str
    encrypted: bool
    token: str = ""
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None

    @classmethod
    def parse(cls, url: str) -> Self:
        """Raises InvalidArgument, without the URL, which may hold a token."""
        try:
            parts = urlsplit(url)
            target = parts.netloc.rpartition("@")[2]
            is_valid = bool(parts.scheme in SCHEMES and parts.hostname and parts.port) and parts.path in ("", "/")
            options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
        except ValueError:
            is_valid = False
        if not is_valid or parts.fragment or parts.username:
            raise InvalidArgument(_USAGE)
        encrypted = parts.scheme == "grpcs"
        for name in options:
            if name not in _FILES or not encrypted:
                raise InvalidArgument(
                    f"{_USAGE}; the options of grpcs:// are {', '.join(_FILES)}, and grpc:// has none"
                )
        files = {name: Path(value) for name, value in options.items()}
        if ("tls_cert" in files) != ("tls_key" in files):
            raise InvalidArgument("a client's certificate has two parts: give both tls_cert and tls_key, or neither")
        token = unquote(parts.password or "")
        if not (token.isascii() and token.isprintable() and " " not in token):
            raise InvalidArgument("the token in the url has characters that no token has")
        return cls(target, encrypted, token, **files)

    def read(self, name: str) -> bytes | None:
        """The file of an option; None where it is not given. Raises InvalidArgument where it cannot be read."""
        path: Path | None = getattr(self, name)
        if path is None:
            return None
        try:
            return path.read_bytes()
        except OSError as error:
            raise InvalidArgument(f"{name} {path} cannot be read: {error.strerror}") from error


def is_grpc_url(url: str) -> bool:
    """Whether it is the URL of a server of this product."""
    return url.partition("://")[0] in SCHEMES
