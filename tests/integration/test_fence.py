"""Each script of the event process, sent by one that has been deposed: it is refused, and nothing has changed."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from redis.exceptions import ResponseError

from tests.conftest import Dump
from tickwheel import NewMessage, Tickwheel
from tickwheel.event_process.commands import Command, Refused
from tickwheel.event_process.link import Link
from tickwheel.event_process.shard import pack_fence
from tickwheel.keys import shard_key
from tickwheel.scripts import Call, load
from tickwheel.testing import VirtualClock
from tickwheel.testing.clock import FRAGMENT

pytestmark = pytest.mark.integration

SCRIPTS = {"file", "cascade", "drop_slot", "promote", "expire", "retire"}
DEPOSED = bytes(16)


@pytest.mark.parametrize("exclusive_key", [None, "of"])
def test_a_deposed_process_is_refused_before_every_call_of_its_successor(
    tw: Tickwheel, clock: VirtualClock, dump: Dump, monkeypatch: pytest.MonkeyPatch, exclusive_key: str | None
) -> None:
    refused: Counter[str] = Counter()
    execute = Link.execute

    def preceded(link: Link, command: Command) -> Any:
        if isinstance(command, Call) and command.script.name in SCRIPTS:
            before = dump()
            with pytest.raises(Refused) as refusal:
                execute(link, replace(command, args=[DEPOSED, *command.args[1:]]))
            assert refusal.value.code == "FENCED", command.script.name
            assert dump() == before
            refused[command.script.name] += 1
        return execute(link, command)

    monkeypatch.setattr(Link, "execute", preceded)
    queue = tw.create_queue("q", exclusive_key=exclusive_key)
    # Some near, some a cascade or two away.
    queue.enqueue_many(
        NewMessage(delay=timedelta(seconds=n * 7), metadata={"of": f"v{n}"}, lease=timedelta(seconds=1 + n))
        for n in range(60)
    )
    clock.advance(timedelta(minutes=10))
    leased = queue.dequeue(limit=30)
    for message in leased[:10]:
        message.complete()
    clock.advance(timedelta(hours=1))
    assert set(refused) == SCRIPTS
    assert queue.counts() | {"invisible": 0, "running": 0, "completed": 0, "pending": 50} == queue.counts()


def test_no_claim_goes_below_the_fence_that_holds_the_shard(tw: Tickwheel, server: Any) -> None:
    """A late claim, of an earlier epoch or of the connection before this one, changes nothing."""
    script = load("claim", FRAGMENT)
    key = shard_key("claimed", 0, "clock")
    server.hset(key, "now", 1)

    def claim(epoch: int, connection: int) -> bytes:
        server.eval(script.source, 1, key, pack_fence(epoch, connection), "a lock", "", "host:1")
        return bytes(server.hget(key, "fence"))

    assert claim(5, 2) == pack_fence(5, 2)
    for epoch, connection in ((5, 1), (4, 9), (1, 2**40)):
        with pytest.raises(ResponseError, match="FENCED"):
            claim(epoch, connection)
        assert server.hget(key, "fence") == pack_fence(5, 2)
    for epoch, connection in ((5, 2), (5, 3), (2**40, 1)):
        assert claim(epoch, connection) == pack_fence(epoch, connection)
    server.delete(key)
