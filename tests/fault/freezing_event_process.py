"""A real event process that sends itself SIGSTOP each time before it raises an epoch, or before it claims a shard.

Usage: freezing_event_process.py URL NAMESPACE ELECTION epoch|claim GO. Before it stops, the program prints `stopped`,
and in an election on ZooKeeper the id and the password of its session, so that a test can end the session. To continue,
write `at once` or `with another session` to the file GO and send SIGCONT. The program then prints the outcome: `done`
or `refused`.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from tests.support.print_line import print_line
from tests.support.wait_until import eventually
from tickwheel.driver.shard_connection import ShardConnection
from tickwheel.election.zookeeper_session import ZooKeeperSession
from tickwheel.event_process.main import parse_election, run
from tickwheel.storage.script_errors import ScriptError
from tickwheel.storage.scripts import Call

_make, _raise_epoch, _execute = ZooKeeperSession.__init__, ZooKeeperSession.raise_epoch, ShardConnection.execute
_GO_S = 60.0
CLAIMS = ("claim_shard", "claim_shard_by_lease")
_ensembles: list[ZooKeeperSession] = []


def make(ensemble: ZooKeeperSession, *args: Any) -> None:
    _ensembles.append(ensemble)
    _make(ensemble, *args)


def raise_epoch(ensemble: ZooKeeperSession, node: str, candidate: str, member: bytes) -> Any:
    stop()
    request = _raise_epoch(ensemble, node, candidate, member)
    try:
        print_line("refused" if isinstance(request.get(timeout=10)[0], Exception) else "done")
    except (KazooException, KazooTimeoutError):
        print_line("refused")
    return request


def execute(link: ShardConnection, command: Any) -> Any:
    # The second call of a claim stores the trusted time, the argument with index 4. The first call decides.
    if not (isinstance(command, Call) and command.script.name in CLAIMS and command.args[4] == ""):
        return _execute(link, command)
    stop()
    try:
        reply = _execute(link, command)
    except ScriptError:
        print_line("refused")
        raise
    print_line("done")
    return reply


def stop() -> None:
    """Stop the process until the test continues it."""
    client = _ensembles[0].client if _ensembles else None
    session, password = client.client_id if client else (0, b"")
    print_line("stopped", *([str(session), password.hex()] if client else []))
    os.kill(os.getpid(), signal.SIGSTOP)
    # The thread that sends the signal may run for a while before all threads are stopped.
    eventually(go.exists, "the file GO exists", _GO_S)
    session_choice = go.read_text()
    go.unlink()
    if client and session_choice == "with another session":
        eventually(lambda: (client.client_id or (session,))[0] != session, "the process has another session")


if __name__ == "__main__":
    url, namespace, election, step = sys.argv[1:5]
    go = Path(sys.argv[5])
    ZooKeeperSession.__init__ = make  # type: ignore[method-assign, assignment]
    if step == "epoch":
        ZooKeeperSession.raise_epoch = raise_epoch  # type: ignore[method-assign, assignment]
    else:
        ShardConnection.execute = execute  # type: ignore[method-assign, assignment]
    run(url, namespace, parse_election(election), None, None)
