"""Connections to other machines without TLS: a warning if they carry a token, and an error if TLS is required."""

import logging

from tickwheel.errors import InvalidArgument
from tickwheel.redis import url as redis_url
from tickwheel.redis.encryption import VARIABLE, encrypted_scheme, exposed_host, requires_tls
from tickwheel.rpc.url import GrpcUrl, is_grpc_url
from tickwheel.runtime.loopback import is_loopback_name

_log = logging.getLogger("tickwheel")
# Whether this process has logged the warning.
_has_warned = False


def check_encryption(url: str) -> None:
    """Check a valid URL before the first connection.

    Raises InvalidArgument if TICKWHEEL_REQUIRE_TLS is 1 and the URL names another machine without TLS. Without the
    variable, log a warning once in a process if an access token would be sent to another machine without TLS.
    """
    is_required = requires_tls()
    host = _exposed_host(url)
    if host is None:
        return
    if is_required:
        raise InvalidArgument(
            f"{redis_url.redact(url)} would send data to {host} without TLS, and {VARIABLE} is 1: use"
            f" {_encrypted_scheme(url)}://, or a server on this machine"
        )
    if is_grpc_url(url) and GrpcUrl.parse(url).token:
        _warn(url, host)


def _warn(url: str, host: str) -> None:
    global _has_warned
    if _has_warned:
        return
    _has_warned = True
    _log.warning(
        "the access token of %s is sent to %s without TLS, so everyone on the network between can read the token: use"
        " %s://, and set %s=1 to refuse such urls",
        *(redis_url.redact(url), host, _encrypted_scheme(url), VARIABLE),
    )


def _exposed_host(url: str) -> str | None:
    """Return the first host of another machine to which the URL's data is sent without TLS, or None."""
    if not is_grpc_url(url):
        return next(filter(None, (exposed_host(url, server) for server in redis_url.servers(url))), None)
    parsed = GrpcUrl.parse(url)
    return None if parsed.encrypted or is_loopback_name(parsed.host) else parsed.host


def _encrypted_scheme(url: str) -> str:
    return "grpcs" if is_grpc_url(url) else encrypted_scheme(url)
