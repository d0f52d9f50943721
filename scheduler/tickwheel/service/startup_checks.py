"""Checks before the service listens. A failed check ends `tickwheel serve` with exit code 2."""

import os
import stat
from pathlib import Path

from tickwheel.errors import InvalidArgument
from tickwheel.runtime.loopback import is_loopback
from tickwheel.runtime.secret_file import KUBERNETES, check_private_status, check_regular_status


def check_certificate(cert: Path | None, key: Path | None, client_ca: Path | None) -> None:
    """Raise InvalidArgument for a certificate without its key, a key without its certificate, or only ``client_ca``."""
    if cert is None and key is None:
        if client_ca is not None:
            raise InvalidArgument("--tls-client-ca works only with TLS: it needs --tls-cert and --tls-key")
    elif cert is None or key is None:
        raise InvalidArgument("give both --tls-cert and --tls-key: a certificate needs its private key")


def check_readable(name: str, path: Path | None) -> None:
    """Raise InvalidArgument if this user cannot read the file, or if it is not a regular file. A missing file is not
    checked.

    The file may be a symbolic link, may belong to root, and may be readable only by a group of this user, as Kubernetes
    mounts secrets.
    """
    status = _status(path)
    if path is None or status is None:
        return
    check_regular_status(name, path, status)
    if not os.access(path, os.R_OK):
        raise InvalidArgument(
            f"{name} {path} cannot be read by this user ({os.geteuid()}): it has owner {status.st_uid}, group"
            f" {status.st_gid} and mode {stat.filemode(status.st_mode)}. Allow this user or one of its groups to read"
            f" the file. {KUBERNETES}"
        )


def check_private(name: str, path: Path | None) -> None:
    """Raise InvalidArgument if any user of this machine can read or change the file. A missing file is not checked."""
    status = _status(path)
    if path is not None and status is not None:
        check_private_status(name, path, status)


def check_exposure(listen: str, host: str, *, encrypted: bool, tokens: bool, insecure: bool) -> None:
    """Raise InvalidArgument if other machines can reach the service without encryption.

    ``insecure`` permits this only for a service without tokens.
    """
    if encrypted or is_loopback(host):
        return
    if tokens:
        raise InvalidArgument(f"tokens would be sent unencrypted to {listen}: use --tls-cert and --tls-key")
    if not insecure:
        raise InvalidArgument(
            f"other machines can reach --listen {listen}, without encryption: use --tls-cert and --tls-key, or accept"
            " it with --insecure"
        )


def _status(path: Path | None) -> os.stat_result | None:
    try:
        return None if path is None else path.stat()
    except OSError:
        return None
