"""The wait for the messages of several queues, step by step: what it reads from the server, and when."""

import time

import pytest

from tests.support.message_wait_server import NAMES, Server
from tickwheel.errors import DataLoss, NamespaceGone
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.several_queues import message_wait
from tickwheel.operations.several_queues.message_wait import MessageWait

pytestmark = pytest.mark.unit


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each sweep check the queues."""
    monkeypatch.setattr(message_wait, "_RECENT_S", 0)


def later() -> float:
    return time.monotonic() + 60


def test_a_first_wait_reads_the_configurations_and_then_all_queues(server: Server) -> None:
    server.ready = {"green"}
    wait = MessageWait(server.context, NAMES)

    assert server.run(wait.next(later())) == ["green"]

    assert [command[0] for command in server.commands[:4]] == ["HGET", "HMGET", "HGET", "EXISTS"]
    assert server.subscribed[-1] == list(NAMES)


def test_a_wait_reads_nothing_while_nothing_is_announced(server: Server) -> None:
    wait = MessageWait(server.context, NAMES)
    server.on_sleep = wait.cancel_wait
    assert server.run(wait.next(later())) == []
    server.commands.clear()

    assert server.run(wait.next(time.monotonic())) == []

    assert server.commands == []


def test_an_announcement_is_returned_without_a_read(server: Server) -> None:
    wait = MessageWait(server.context, NAMES)

    def announce() -> None:
        server.commands.clear()
        server.waiter.next = (["blue"], False)

    server.on_sleep = announce
    assert server.run(wait.next(later())) == ["blue"]

    assert server.commands == []


@pytest.mark.usefixtures("_no_pause")
def test_a_sweep_costs_one_check_of_two_commands_whatever_the_number_of_queues(server: Server) -> None:
    wait, sweeps = MessageWait(server.context, NAMES), iter([True, False])

    def sweep() -> None:
        if next(sweeps):
            server.commands.clear()
            server.waiter.next = ([], True)
        else:
            wait.cancel_wait()

    server.on_sleep = sweep
    assert server.run(wait.next(later())) == []
    assert [command[0] for command in server.commands] == ["HGET", "EXISTS"]


@pytest.mark.usefixtures("_no_pause")
def test_a_sweep_near_the_end_of_the_wait_costs_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_wait, "_NEAR_END_S", 100)
    wait = MessageWait(server.context, NAMES)

    def sweep() -> None:
        if len(server.sleeps) == 1:
            server.commands.clear()
            server.waiter.next = ([], True)
        else:
            wait.cancel_wait()

    server.on_sleep = sweep
    assert server.run(wait.next(later())) == []
    assert server.commands == []


def test_a_sweep_immediately_after_a_check_costs_nothing(server: Server) -> None:
    wait = MessageWait(server.context, NAMES)

    def sweep() -> None:
        if len(server.sleeps) == 1:
            server.commands.clear()
            server.waiter.next = ([], True)
        else:
            wait.cancel_wait()

    server.on_sleep = sweep
    assert server.run(wait.next(later())) == []
    assert server.commands == []


@pytest.mark.usefixtures("_no_pause")
def test_a_blocked_queue_and_one_that_does_not_exist_are_not_subscribed_to_until_a_check_finds_them_open(
    server: Server,
) -> None:
    blocked, server.stored["red"] = server.stored["red"], QueueConfig(dequeue_blocked=True)
    missing = server.stored.pop("green")
    server.ready = {"red", "green"}
    wait = MessageWait(server.context, NAMES)

    def open_all() -> None:
        assert server.subscribed[-1] == ["blue"]
        server.stored |= {"red": blocked, "green": missing}
        server.waiter.to_read = ("red", "green")

    server.on_sleep = open_all
    assert server.run(wait.next(later())) == ["red", "green"]
    assert server.subscribed[-1] == list(NAMES)


@pytest.mark.usefixtures("_no_pause")
def test_a_wait_without_an_open_queue_reads_nothing_until_a_sweep(server: Server) -> None:
    server.stored.clear()
    wait = MessageWait(server.context, NAMES)
    server.ready = {"red"}

    def wake() -> None:
        assert server.closed == list(NAMES)
        if len(server.sleeps) == 1:
            server.commands.clear()
        else:
            assert server.commands == []
            server.stored["red"] = QueueConfig()
            server.waiter.to_read = ("red", "green")

    server.on_sleep = wake
    assert server.run(wait.next(later())) == ["red"]

    assert [command[0] for command in server.commands[:2]] == ["HGET", "HMGET"]
    assert min(server.sleeps) > 59
    assert set(server.waiter.opened) == {"red"}


@pytest.mark.usefixtures("_no_pause")
def test_a_wait_reads_the_closed_queues_of_other_calls_and_notifies_these_calls(server: Server) -> None:
    server.stored["theirs"] = QueueConfig()
    wait = MessageWait(server.context, NAMES)

    def sweep() -> None:
        if len(server.sleeps) == 1:
            server.commands.clear()
            server.waiter.opened.clear()
            server.waiter.to_read = ("absent", "theirs")
        else:
            wait.cancel_wait()

    server.on_sleep = sweep
    assert server.run(wait.next(later())) == []

    assert [command[2:] for command in server.commands if command[0] == "HMGET"] == [("absent", "theirs")]
    assert server.waiter.opened == ["theirs"]
    assert server.waiter.to_read == ()


@pytest.mark.usefixtures("_no_pause")
def test_queues_that_a_sweep_chooses_during_a_check_are_read_by_the_next_one(server: Server) -> None:
    wait = MessageWait(server.context, NAMES)
    server.stored["late"] = QueueConfig()

    def sweep() -> None:
        if len(server.sleeps) == 1:
            server.waiter.opened.clear()
            server.waiter.to_read = ("absent",)
            server.on_round = lambda: setattr(server.waiter, "to_read", ("late",))
        elif len(server.sleeps) == 2:
            assert server.waiter.opened == []
        else:
            wait.cancel_wait()

    server.on_sleep = sweep
    assert server.run(wait.next(later())) == []
    assert server.waiter.opened == ["late"]


@pytest.mark.usefixtures("_no_pause")
def test_a_damaged_configuration_fails_only_the_calls_that_name_the_queue(server: Server) -> None:
    server.damaged = {"theirs"}
    server.stored["theirs"] = QueueConfig()
    wait = MessageWait(server.context, NAMES)

    def sweep() -> None:
        if len(server.sleeps) == 1:
            server.waiter.to_read = ("theirs",)
        else:
            wait.cancel_wait()

    server.on_sleep = sweep
    assert server.run(wait.next(later())) == []
    with pytest.raises(DataLoss):
        server.run(MessageWait(server.context, ["theirs"]).next(later()))


def test_a_call_that_has_just_read_its_closed_queues_does_not_read_them_again_for_a_sweep(server: Server) -> None:
    server.stored.clear()
    wait = MessageWait(server.context, NAMES)

    def sweep() -> None:
        if len(server.sleeps) == 1:
            server.commands.clear()
            server.waiter.to_read = NAMES
        else:
            wait.cancel_wait()

    server.on_sleep = sweep
    assert server.run(wait.next(later())) == []
    assert server.commands == []
    assert server.waiter.to_read == ()


def test_a_wait_notices_without_a_read_that_another_call_has_found_a_queue_open(server: Server) -> None:
    config = server.stored.pop("red")
    wait = MessageWait(server.context, NAMES)

    def find_open() -> None:
        server.stored["red"] = config
        server.context.cache_configs({"red": config})
        server.ready = {"red"}
        server.waiter.next = ([], True)

    server.on_sleep = find_open
    assert server.run(wait.next(later())) == ["red"]
    assert server.waiter.opened[-1] == "red"


def test_a_wake_up_is_in_use_if_its_queue_is_returned_to_a_caller_of_the_service(server: Server) -> None:
    server.on_sleep = lambda: setattr(server.waiter, "next", (["blue"], False))
    assert server.run(MessageWait(server.context, NAMES).plan(60)) == ["blue"]
    assert server.waiter.searched == ["blue"]
    assert server.subscribed[-1] == []


def test_a_wake_up_is_passed_on_if_the_caller_may_choose_another_queue(server: Server) -> None:
    server.ready = {"red", "blue"}
    assert server.run(MessageWait(server.context, NAMES).plan(60)) == ["red", "blue"]
    assert server.waiter.searched == []


def test_a_call_that_does_not_wait_needs_no_subscription(server: Server) -> None:
    server.ready = {"red"}
    assert server.run(MessageWait(server.context, NAMES).plan(0)) == ["red"]
    server.ready = set()
    assert server.run(MessageWait(server.context, NAMES).plan(0)) == []
    assert server.subscribed == []


def test_a_wait_finds_messages_of_each_shard() -> None:
    server = Server(shards=4)
    server.ready = {"green"}
    wait = MessageWait(server.context, NAMES)
    assert server.run(wait.next(later())) == ["green"]


def test_a_wait_fails_if_the_namespace_is_gone(server: Server) -> None:
    server.shards = b"7"
    with pytest.raises(NamespaceGone):
        server.run(MessageWait(server.context, NAMES).next(later()))


def test_a_dequeue_after_an_announcement_does_not_take_the_queue_for_empty(server: Server) -> None:
    server.context.heads.known_empty |= {("blue", b""), ("red", b"")}
    server.on_sleep = lambda: setattr(server.waiter, "next", (["blue"], False))
    server.run(MessageWait(server.context, NAMES).next(later()))
    assert server.context.heads.known_empty == {("red", b"")}


@pytest.mark.parametrize(("ready", "rounds"), [(100, 2), (1, 2)])
def test_a_check_of_many_queues_on_many_shards_reads_few_of_them_at_a_time(
    monkeypatch: pytest.MonkeyPatch, ready: int, rounds: int
) -> None:
    monkeypatch.setattr(message_wait, "randrange", lambda _: 0)
    server, names = Server(shards=64), [f"q{n:03d}" for n in range(100)]
    server.stored = dict.fromkeys(names, QueueConfig())
    server.ready = set(names[:ready])
    wait = MessageWait(server.context, names)
    # The first check reads the configurations.
    first = names[: min(ready, message_wait._ROUND_KEYS // 64)]
    assert server.run(wait.plan(0)) == first
    server.rounds = server.largest_round = 0
    assert server.run(wait.plan(0)) == first
    assert server.largest_round <= message_wait._ROUND_READS
    # Two shards are enough to find a queue.
    assert server.rounds == rounds
