"""A check of many queues on many shards: it reads a part of the keys at a time, and shards may not answer."""

import time
from typing import Any

import pytest

from tests.support.message_wait_server import Server
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.several_queues import message_wait
from tickwheel.operations.several_queues.message_wait import MessageWait
from tickwheel.plan import Round

pytestmark = pytest.mark.unit

QUEUES = [f"q{n:02}" for n in range(20)]


@pytest.fixture(autouse=True)
def start(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the places at which the next checks begin; further checks begin with the first queue."""
    starts: list[int] = []
    monkeypatch.setattr(message_wait, "randrange", lambda _: starts.pop(0) if starts else 0)
    return starts


def make_server(ready: set[str], shards: int = 12) -> Server:
    """Return a server that asks for three of the 20 queues in each round."""
    server = Server(shards=shards)
    server.stored = {name: QueueConfig() for name in QUEUES}
    server.ready = ready
    return server


def asked_queues(server: Server) -> list[set[str]]:
    """Return the queues of the reads with more than one key, without repetitions."""
    asked: list[set[str]] = []
    for command in server.commands:
        queues = {name for name in QUEUES if any(f":{name}:" in str(key) for key in command[1:])}
        if command[0] == "EXISTS" and len(queues) > 1 and queues not in asked:
            asked.append(queues)
    return asked


@pytest.mark.parametrize("ready", [set(), {"q00"}, {"q01", "q19"}, {"q19"}])
def test_a_check_of_many_queues_on_many_shards_reads_a_bounded_number_of_keys_at_a_time(
    monkeypatch: pytest.MonkeyPatch, ready: set[str]
) -> None:
    monkeypatch.setattr(message_wait, "_ROUND_KEYS", 36)
    server = make_server(ready)
    wait = MessageWait(server.context, QUEUES)
    assert server.run(wait.next(time.monotonic() + 60 if ready else time.monotonic())) == sorted(ready)[:1]
    # The round that finds the queue reads three queues of each shard separately.
    assert server.largest_round <= 12 * (3 if ready else 1) + 2
    first = int(min(ready, default="q19")[1:]) // 3
    assert asked_queues(server) == [set(QUEUES[n : n + 3]) for n in range(0, 20, 3)][: first + 1]

    # Other queues may have messages, too: the next wait checks again, although nothing was announced.
    if len(ready) > 1:
        server.ready = {"q19"}
        assert server.run(wait.next(time.monotonic() + 60)) == ["q19"]


def test_each_check_begins_with_another_queue(monkeypatch: pytest.MonkeyPatch, start: list[int]) -> None:
    monkeypatch.setattr(message_wait, "_ROUND_KEYS", 36)
    server = make_server({"q00", "q08", "q19"})
    start += [0, 7, 18, 9]
    wait = MessageWait(server.context, QUEUES)
    # Each check ends with the first round that finds messages. The last one reads the queues from q09 to q08.
    assert [server.run(wait.next(time.monotonic() + 60)) for _ in range(3)] == [["q00"], ["q08"], ["q19", "q00"]]
    server.ready = {"q08"}
    assert server.run(wait.next(time.monotonic() + 60)) == ["q08"]


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_check_goes_on_if_others_have_taken_the_messages_that_it_has_found(
    monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    monkeypatch.setattr(message_wait, "_ROUND_KEYS", 36)
    server = make_server({"q00", "q19"})

    def read(command: tuple[Any, ...]) -> Any:
        # Another client takes the message of q00 before the check reads the queues separately.
        if command[0] == "EXISTS" and len(command) == 2:
            server.ready = {"q19"}
        return Server._read(server, command)

    monkeypatch.setattr(server, "_read", read)
    assert server.run(MessageWait(server.context, QUEUES).plan(seconds)) == ["q19"]


def test_shards_that_do_not_answer_delay_two_rounds_of_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_wait, "_ROUND_KEYS", 120)
    server = make_server({"q19"}, shards=60)
    delayed = 0

    def is_silent(request: Any) -> bool:
        return any(f"{{{shard}}}" in str(request.command) for shard in range(1, 60))

    def answer(step: Any) -> Any:
        nonlocal delayed
        replies = Server._answer(server, step)
        if not isinstance(step, Round):
            return replies
        left = [None if is_silent(request) else reply for request, reply in zip(step.requests, replies, strict=True)]
        delayed += None in left
        # As `RoundTrip`: a round without any reply does not end.
        assert any(left)
        return left

    monkeypatch.setattr(server, "_answer", answer)
    assert server.run(MessageWait(server.context, QUEUES).next(time.monotonic() + 60)) == ["q19"]
    assert delayed == 2
