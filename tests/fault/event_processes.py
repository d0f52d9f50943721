"""Event processes as real processes that tests can kill, freeze and depose."""

import sys
from pathlib import Path
from typing import Any

from services.process import Process
from tests.support.wait_until import eventually
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.redis.url import VARIABLE
from tickwheel.storage.keys import shard_key

ROOT = Path(__file__).parents[2]


class EventProcessChild(Process):
    """`python -m tickwheel.event_process`, killed at the end.

    ``lock`` is the lock file of the leader, and names the log. With ``election``, it only names the log.
    ``module`` is the program.
    """

    def __init__(
        self,
        url: str,
        namespace: str,
        lock: Path,
        *options: str,
        election: ZooKeeperUrl | str | None = None,
        module: str = "tickwheel.event_process",
    ) -> None:
        command = [sys.executable, "-m", module, "--namespace", namespace, *options]
        command += ["--lock", str(lock)] if election is None else ["--election", str(election)]
        super().__init__(lock.name, command, lock.parent, environment={VARIABLE: url}, cwd=ROOT)

    def __exit__(self, *_: object) -> None:
        self.kill()


def fence(client: Any, namespace: str, shard: int = 0) -> bytes | None:
    """Return the fence of a shard. Each claim changes it."""
    fence_now: bytes | None = client.hget(shard_key(namespace, shard, "clock"), "fence")
    return fence_now


def wait_for_a_claim(client: Any, namespace: str, before: bytes | None, shard: int = 0) -> None:
    """Wait until the shard has a fence other than ``before``."""
    eventually(lambda: fence(client, namespace, shard) not in (None, before), "an event process claims the shard")
