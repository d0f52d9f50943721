"""A real event process that stops itself, as SIGSTOP does, each time it is about to raise an epoch, or to claim by one.

Usage: freezing_event_process.py URL NAMESPACE ELECTION epoch|claim GO. It says `stopped` and its session with
ZooKeeper (id and password, by which others can end it); once it has gone on and was answered, `done` or `refused`. To
let it go on make the file GO, with `at once` in it or `with another session`, and send SIGCONT.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from tests.support.wait_until import eventually
from tickwheel.driver.shard_connection import ShardConnection
from tickwheel.election.zookeeper_session import ZooKeeperSession
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.event_process.main import run
from tickwheel.storage.script_errors import ScriptError
from tickwheel.storage.scripts import Call

_make, _raise_epoch, _execute = ZooKeeperSession.__init__, ZooKeeperSession.raise_epoch, ShardConnection.execute
_GO_S = 60.0
_ensembles: list[ZooKeeperSession] = []


def make(ensemble: ZooKeeperSession, *args: Any) -> None:
    _ensembles.append(ensemble)
    _make(ensemble, *args)


def raise_epoch(ensemble: ZooKeeperSession, node: str, candidate: str, who: bytes) -> Any:
    stop()
    request = _raise_epoch(ensemble, node, candidate, who)
    try:
        say("refused" if isinstance(request.get(timeout=10)[0], Exception) else "done")
    except (KazooException, KazooTimeoutError):
        say("refused")
    return request


def execute(link: ShardConnection, command: Any) -> Any:
    if not (isinstance(command, Call) and command.script.name == "claim_shard"):
        return _execute(link, command)
    stop()
    try:
        reply = _execute(link, command)
    except ScriptError:
        say("refused")
        raise
    say("done")
    return reply


def stop() -> None:
    """Until somebody lets it go on: the moment of the fault."""
    client = _ensembles[0].client
    session, password = client.client_id
    say("stopped", str(session), password.hex())
    os.kill(os.getpid(), signal.SIGSTOP)
    # The thread that sends the signal may run on for a while before all are stopped.
    eventually(go.exists, "it may go on", _GO_S)
    how = go.read_text()
    go.unlink()
    if how == "with another session":
        eventually(lambda: (client.client_id or (session,))[0] != session, "it has another session")


def say(*words: str) -> None:
    print(*words, flush=True)


if __name__ == "__main__":
    url, namespace, election, where = sys.argv[1:5]
    go = Path(sys.argv[5])
    ZooKeeperSession.__init__ = make  # type: ignore[method-assign, assignment]
    if where == "epoch":
        ZooKeeperSession.raise_epoch = raise_epoch  # type: ignore[method-assign, assignment]
    else:
        ShardConnection.execute = execute  # type: ignore[method-assign, assignment]
    run(url, namespace, ZooKeeperUrl.parse(election), None, until_eof=False)
