"""Event processes as real processes, to be killed, frozen and deposed."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.wait_until import eventually
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.redis.url import VARIABLE
from tickwheel.storage.keys import shard_key


class EventProcessChild:
    """`python -m tickwheel.event_process`; it ends with the tests, however they end."""

    def __init__(
        self, url: str, namespace: str, lock: Path, *options: str, election: ZooKeeperUrl | None = None
    ) -> None:
        """With ``election`` the lock only names its log."""
        command = [sys.executable, "-m", "tickwheel.event_process", "--until-eof", "--namespace", namespace]
        command += ["--lock", str(lock)] if election is None else ["--election", str(election)]
        self._log = lock.with_suffix(".log")
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *options],
                stdin=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=os.environ | {VARIABLE: url},
            )

    @property
    def log(self) -> str:
        """What it said."""
        return self._log.read_text()

    def freeze(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it at once, frozen or not."""
        self.process.kill()
        self._reap()

    def stop(self, within: float = 20.0) -> int:
        """Ask it to end, as an operator does; its exit status. TimeoutExpired after ``within`` seconds."""
        self.process.terminate()
        return self._reap(within)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _reap(self, within: float = 20.0) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(within)


def fence(client: Any, namespace: str, shard: int = 0) -> bytes | None:
    """Who drives a shard: changes with every claim."""
    found: bytes | None = client.hget(shard_key(namespace, shard, "clock"), "fence")
    return found


def wait_for_a_claim(client: Any, namespace: str, before: bytes | None, shard: int = 0) -> None:
    """Until somebody else than ``before`` drives the shard."""
    eventually(lambda: fence(client, namespace, shard) not in (None, before), "an event process claims the shard")
