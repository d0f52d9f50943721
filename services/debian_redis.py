"""A server of Redis as Debian packages it: the oldest version that Tickwheel supports."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from services.apt import find_or_install
from services.valkey import ValkeyServer


class DebianRedis(ValkeyServer):
    """See `ValkeyServer`. The server program of Debian's redis-tools checks files if it has the name of that tool."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(name, folder, settings)
        program = find_or_install(lambda: shutil.which("redis-check-rdb"), "redis-tools")
        folder.mkdir(parents=True, exist_ok=True)
        link = folder / "redis-server"
        link.unlink(missing_ok=True)
        link.symlink_to(program)
        self.command[0] = str(link)
