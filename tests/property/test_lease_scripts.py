"""The scripts of the election by lease agree with the simulated server, on which its simulation relies."""

from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from redis.exceptions import ResponseError

from tests.lease_simulation.events import Fenced
from tests.lease_simulation.server import SimulatedServer, State, StoredShard
from tests.support.wait_until import eventually
from tickwheel.election.lease_attendance import Attendance, Mode
from tickwheel.election.lease_row import Row
from tickwheel.election.stored_assignment import NONE_STORED, StoredAssignment
from tickwheel.storage.fence import CLAIM_FIELDS, StoredClaim, pack_fence
from tickwheel.storage.keys import election_key, namespace_key, shard_key
from tickwheel.storage.scripts import load

pytestmark = pytest.mark.property

MEMBERS = ("a", "b", "c")
SHARDS = 2
FENCES = [b"", *(pack_fence(epoch, number) for epoch in (1, 2) for number in (0, 7))]
EMPTY: frozenset[int] = frozenset()
ROWS = [Row(0, beat, EMPTY, EMPTY, EMPTY, "") for beat in range(3)]
ASSIGNMENTS = [
    NONE_STORED,
    *(
        StoredAssignment.make(version, ["a", "b"], partial(float, part))
        for version in (1, 2)
        for part in ("0.1", "0.2")
    ),
]

ATTENDANCES = st.builds(
    Attendance,
    mode=st.sampled_from(Mode),
    row=st.sampled_from(ROWS),
    announces=st.booleans(),
    removals=st.lists(
        st.tuples(st.sampled_from(MEMBERS), st.sampled_from([row.pack(SHARDS) for row in ROWS])), max_size=2
    ),
    seen=st.sampled_from(ASSIGNMENTS),
    proposal=st.none() | st.sampled_from(ASSIGNMENTS[1:]),
    is_first=st.just(False),
)
STEPS = st.lists(
    st.tuples(st.just("attend"), st.sampled_from(MEMBERS), ATTENDANCES)
    | st.tuples(
        st.just("claim"),
        st.sampled_from(MEMBERS),
        st.tuples(st.sampled_from(FENCES), st.sampled_from(FENCES[1:])),
    )
    | st.tuples(st.just("release"), st.just(""), st.sampled_from(FENCES[1:])),
    max_size=20,
)


class Model:
    """A simulated server that records what is published."""

    def __init__(self) -> None:
        self._published: list[bytes] = []
        world = SimpleNamespace(
            events=SimpleNamespace(now=0.0),
            is_mutant=lambda name: False,
            publish_change=lambda _, member: self._published.append(member.encode()),
            on_claimed=lambda *_: None,
            wake_driver=lambda *_: None,
        )
        self.server = SimulatedServer(world, State((StoredShard(),) * SHARDS), 0)

    def take_published(self) -> list[bytes]:
        """Return the members whose calls were published since the last call of this method."""
        published, self._published = self._published, []
        return published


class Listener:
    """A subscription to the channel of the election."""

    def __init__(self, server: Any, namespace: str) -> None:
        self._server, self._channel = server, election_key(namespace)
        self._subscription = server.pubsub()
        self._subscription.ssubscribe(self._channel)
        self._next()

    def close(self) -> None:
        self._subscription.close()

    def take_published(self) -> list[bytes]:
        """Return the messages since the last call of this method."""
        # The messages of a channel arrive in the order in which they are published.
        self._server.spublish(self._channel, b"end")
        published: list[bytes] = []
        while (data := self._next()) != b"end":
            published.append(data)
        return published

    def _next(self) -> Any:
        message = eventually(lambda: self._subscription.get_message(timeout=1), "a message arrives", pause=0)
        return message["data"]


class Scripts:
    """The scripts on a real server."""

    def __init__(self, server: Any, namespace: str) -> None:
        self._server = server
        self._clock, self._election = shard_key(namespace, 0, "clock"), election_key(namespace)
        self._namespace = namespace_key(namespace)

    def clear(self) -> None:
        self._server.delete(self._clock, self._election)
        self._server.hset(self._namespace, "shards", SHARDS)

    def attend(self, member: str, call: Attendance) -> list[Any]:
        args: list[Any] = [
            *(member, call.mode, call.row.pack(SHARDS), int(call.announces), call.seen.header),
            call.proposal.packed() if call.proposal else b"",
            SHARDS,
        ]
        for removed, row in call.removals:
            args += [removed, row]
        source = load("attend_election").source
        return list(self._server.eval(source, 2, self._election, self._namespace, *args))

    def claim(self, member: str, seen: bytes, fence: bytes, created: bytes = b"") -> bool:
        args = (fence, "lease", "", "host:1", "", 0, member, seen, created)
        try:
            self._server.eval(load("claim_shard_by_lease").source, 1, self._clock, *args)
        except ResponseError as error:
            if not str(error).startswith("FENCED"):
                raise
            return False
        return True

    def release(self, fence: bytes) -> None:
        self._server.eval(load("release_shard").source, 1, self._clock, fence)

    def stored(self) -> StoredClaim:
        return StoredClaim.parse(self._server.hmget(self._clock, *CLAIM_FIELDS))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_the_scripts_agree_with_the_simulated_server(server: Any, namespace: str, steps: list[Any]) -> None:
    model, scripts = Model(), Scripts(server, namespace)
    scripts.clear()
    with closing(Listener(server, namespace)) as listener:
        for step in steps:
            compare_step(model, scripts, *step)
            assert listener.take_published() == model.take_published()
            shard, stored = model.server.state.shards[0], scripts.stored()
            assert (stored.fence, stored.holder) == (shard.fence, shard.holder)


def compare_step(model: Model, scripts: Scripts, kind: str, member: str, argument: Any) -> None:
    """Make a call on both, and compare the replies."""
    if kind == "attend":
        expected = model.server.attend(member, argument)
        had_row, header, rest, *fields = scripts.attend(member, argument)
        assert bool(had_row) == expected.had_row
        assert dict(zip([field.decode() for field in fields[::2]], fields[1::2], strict=True)) == expected.rows
        assert header == expected.assignment.header
        if header != argument.seen.header:
            assert StoredAssignment.parse(header, rest) == expected.assignment
    elif kind == "claim":
        seen, fence = argument
        try:
            is_claimed = model.server.claim(0, seen, fence, member, object())
        except Fenced:
            is_claimed = False
        # The same fence may claim again.
        is_again = model.server.state.shards[0].fence == fence
        assert scripts.claim(member, seen, fence) == (is_claimed or is_again)
        if is_again and not is_claimed:
            model.server.claim(0, fence, fence, member, object())
    else:
        model.server.release({0: argument})
        scripts.release(argument)


@pytest.mark.parametrize("shards", [None, 0, SHARDS + 1], ids=["missing", "being deleted", "recreated"])
def test_nobody_takes_part_in_the_election_of_a_namespace_that_is_gone(
    server: Any, namespace: str, shards: int | None
) -> None:
    scripts = Scripts(server, namespace)
    scripts.clear()
    if shards is None:
        server.delete(namespace_key(namespace))
    else:
        server.hset(namespace_key(namespace), "shards", shards)
    for mode in Mode:
        call = Attendance(mode, ROWS[1], True, [], NONE_STORED, ASSIGNMENTS[1], False)
        with pytest.raises(ResponseError, match=r"^NAMESPACEGONE"):
            scripts.attend("a", call)
    assert not server.exists(election_key(namespace))


@pytest.mark.parametrize(
    ("stored", "seen", "is_claimed"),
    [(None, b"1", False), (b"2", b"1", False), (b"1", b"1", True), (b"1", b"", True), (None, b"", True)],
    ids=["gone", "created again", "the same", "created meanwhile", "of an older version"],
)
def test_a_claim_over_no_fence_is_accepted_only_by_the_shard_that_the_member_has_seen(
    server: Any, namespace: str, stored: bytes | None, seen: bytes, is_claimed: bool
) -> None:
    scripts, clock = Scripts(server, namespace), shard_key(namespace, 0, "clock")
    if stored is not None:
        server.hset(clock, "created", stored)
    before = server.hgetall(clock)
    assert scripts.claim("a", b"", FENCES[2], created=seen) is is_claimed
    assert (server.hgetall(clock) != before) is is_claimed


def test_a_driver_that_claims_again_leaves_no_key_of_a_shard_that_is_gone(server: Any, namespace: str) -> None:
    scripts, clock = Scripts(server, namespace), shard_key(namespace, 0, "clock")
    server.hset(clock, "created", b"1")
    # A driver claims with the same fence again when it stores the state of the clock guard.
    for _ in range(2):
        assert scripts.claim("a", b"", FENCES[2], created=b"1")
    server.delete(clock)
    assert not scripts.claim("a", b"", FENCES[2], created=b"1")
    assert not server.exists(clock)
