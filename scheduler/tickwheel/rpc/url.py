"""The URL of a gRPC service: its address, the caller's token, and the files for TLS.

grpc://host:port, grpc://:TOKEN@host:port, and with TLS grpcs://[:TOKEN@]host:port?tls_ca=FILE&tls_cert=FILE&tls_key=FILE
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from tickwheel.errors import InvalidArgument

SCHEMES: Final = ("grpc", "grpcs")
_BYTES: Final = 4_096
_FILES: Final = ("tls_ca", "tls_cert", "tls_key")
_USAGE: Final = (
    "the url of a gRPC service is grpc://host:port or, with TLS, grpcs://host:port?tls_ca=FILE; a token precedes the"
    " host, as in grpc://:TOKEN@host:port"
)


@dataclass(frozen=True, slots=True)
class GrpcUrl:
    """A parsed URL.

    ``tls_ca`` is the file of the certificate authorities that verify the server's certificate (default: those of the
    system). ``tls_cert`` and ``tls_key`` are this client's own certificate, if the server requires one.
    """

    target: str
    encrypted: bool
    token: str = field(default="", repr=False)
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse a URL. Raises InvalidArgument. The error text does not quote the URL, which can contain a token."""
        try:
            # gRPC accepts no NUL and no lone surrogate.
            is_text = len(url.encode()) <= _BYTES and "\0" not in url
            parts = urlsplit(url)
            target = parts.netloc.rpartition("@")[2]
            is_valid = (
                is_text and bool(parts.scheme in SCHEMES and parts.hostname and parts.port) and parts.path in ("", "/")
            )
            options = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
        except ValueError:
            is_valid = False
        if not is_valid or parts.fragment or parts.username:
            raise InvalidArgument(_USAGE)
        encrypted = parts.scheme == "grpcs"
        for name in options:
            if name not in _FILES or not encrypted:
                raise InvalidArgument(
                    f"{_USAGE}; grpcs:// has the options {', '.join(_FILES)}, and grpc:// has no options"
                )
        files = {name: Path(value) for name, value in options.items()}
        if ("tls_cert" in files) != ("tls_key" in files):
            raise InvalidArgument("a client certificate has two parts: give both tls_cert and tls_key, or neither")
        token = unquote(parts.password or "")
        if not (token.isascii() and token.isprintable() and " " not in token):
            raise InvalidArgument(
                "the token in the url is invalid: a token has only printable ASCII characters, and no spaces"
            )
        return cls(target, encrypted, token, **files)

    @property
    def host(self) -> str:
        """The host of the service, an IPv6 address without its brackets."""
        return self.target.rpartition(":")[0].strip("[]")

    def read(self, name: str) -> bytes | None:
        """Return the content of an option's file, or None if the option is not set.

        Raises InvalidArgument if the file cannot be read.
        """
        path: Path | None = getattr(self, name)
        if path is None:
            return None
        try:
            return path.read_bytes()
        except OSError as error:
            raise InvalidArgument(f"{name} {path} cannot be read: {error.strerror}") from error


def is_grpc_url(url: str) -> bool:
    """Return whether the URL names a gRPC service."""
    return url.partition("://")[0] in SCHEMES
