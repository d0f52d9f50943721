"""Programs and libraries from this machine, or from Debian packages if this process may install them (root)."""

import os
import shutil
import subprocess
from collections.abc import Callable

from services.process import ServiceError

_WAIT_S = 900.0


def find_or_install(find: Callable[[], str | None], *packages: str) -> str:
    """Return the result of ``find``, after installing the packages if necessary. Raises ServiceError with advice."""
    result = find()
    if result is None:
        missing = (
            f"{' and '.join(packages)} is missing here: on Debian and Ubuntu, apt-get install {' '.join(packages)}"
        )
        install(*packages, missing=missing)
        result = find()
    if result is None:
        raise ServiceError(f"{' and '.join(packages)} of Debian did not contain the program that is needed")
    return result


def install(*packages: str, missing: str) -> None:
    """Install packages. Raises ServiceError: with ``missing`` if not root or without apt-get, else with the reason."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise ServiceError(missing)
    apt_get = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300")
    run(*apt_get, "update")
    run(*apt_get, "install", "--yes", "--no-install-recommends", *packages)


def run(*command: str) -> None:
    """Run a program without input, for at most 15 minutes. Raises ServiceError with its output if it fails."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_WAIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ServiceError(f"'{' '.join(command)}' took over {_WAIT_S:g} s: is there a network?") from error
    if done.returncode:
        raise ServiceError(f"'{' '.join(command)}' failed ({done.returncode}):\n{done.stdout}\n{done.stderr}")
