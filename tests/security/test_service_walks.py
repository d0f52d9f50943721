"""A walk of an index takes many script calls of one caller. The service charges them, and makes one walk of each caller
at a time, so that no caller keeps the Redis server busy.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from tests.integration.generic_client import GenericClient
from tests.integration.service_thread import ServiceThread
from tests.security.tokens import entry, generic_client, write_token_file
from tests.support.command_stats import calls_of
from tests.support.frozen_server import frozen
from tests.support.jobs_namespace import jobs_namespace
from tests.support.wait_until import eventually
from tickwheel import NewMessage, Tickwheel, limits
from tickwheel.redis import shared_searches
from tickwheel.storage.scripts import load
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

SLOW, FREE, OTHER, WALKING, LAST, WAITING = (f"tw_{name}-Of-Walks" for name in "abcdef")
RATED = {name: f"tw_{name}-Of-Walks" for name in ("GetDepth", "Dequeue", "DequeueBatch")}
NAMESPACE = "service-walks"
# A call reads at most this number of index entries. No message has both pairs of the filter, so that a walk takes
# `STEPS` calls, the last of which finds the end of the index.
ENTRIES, STEPS = 20, 11
APART = {"x": "1", "y": "1"}
QUEUE = {"namespace": NAMESPACE, "queue": "jobs"}
WALK = QUEUE | {"where": APART}
MANY = 30
WALKING_FIELDS = f'namespaces = ["{NAMESPACE}"]\nmessages_per_second = 1\nburst = {MANY}\n'
REQUEST = WALK | {"request_id": "batch:1", "first_attempt": True}


@pytest.fixture(scope="module")
def service(tickwheel_server: PrivateServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceThread]:
    here = f'namespaces = ["{NAMESPACE}"]\n'
    roles = '["consume"]'
    tokens = write_token_file(
        tmp_path_factory.mktemp("tokens"),
        entry(SLOW, roles, here + f"messages_per_second = 1\nburst = {MANY}"),
        entry(FREE, roles, here),
        entry(OTHER, roles, here),
        entry(LAST, roles, here + "messages_per_second = 1\nburst = 5"),
        entry(WAITING, roles, here + f"messages_per_second = 1\nburst = {MANY + 1}"),
        *(entry(token, roles, here + "messages_per_second = 1\nburst = 5") for token in RATED.values()),
    )
    with (
        jobs_namespace(tickwheel_server, NAMESPACE),
        ServiceThread(tickwheel_server.url, tokens=tokens) as serving,
        pytest.MonkeyPatch.context() as patch,
    ):
        with Tickwheel(tickwheel_server.url, namespace=NAMESPACE, drive=False) as tickwheel:
            messages = (NewMessage(metadata={key: "1"}) for key in APART for _ in range(ENTRIES * (STEPS - 1)))
            tickwheel.queue("jobs").enqueue_many(messages)
        patch.setattr(limits, "CALL_ENTRIES", ENTRIES)
        yield serving


def in_flight(service: ServiceThread, name: str) -> int:
    return service.server.counters.methods[name].in_flight


def walk_many(client: GenericClient, threads: ThreadPoolExecutor) -> list[Any]:
    return [threads.submit(client.call, "GetDepth", **WALK, timeout=60) for _ in range(MANY)]


@contextmanager
def walks_in_line(server: PrivateServer, folder: Path, *entries: str) -> Iterator[tuple[ServiceThread, list[Any]]]:
    """Start a service with WALKING and the tokens of the ``entries``. Yield the service and the walks of WALKING.

    One of the walks has ended. The others wait for the rate of the token.
    """
    tokens = write_token_file(folder, entry(WALKING, '["consume"]', WALKING_FIELDS), *entries)
    with (
        ServiceThread(server.url, tokens=tokens) as serving,
        grpc.insecure_channel(serving.target) as channel,
        ThreadPoolExecutor(MANY) as threads,
        server.client() as redis,
    ):
        with frozen(redis):
            walks = walk_many(generic_client(channel, WALKING), threads)
            eventually(lambda: in_flight(serving, "GetDepth") == MANY, "all calls wait for the Redis server")
        eventually(lambda: in_flight(serving, "GetDepth") == MANY - 1, "one walk has ended, the others wait")
        yield serving, walks


def count_script_calls(redis: Any) -> int:
    return calls_of(redis, "evalsha")


def cursors(monitor: Any, server: PrivateServer) -> Iterator[str]:
    """Return the cursor of each script call that continues a walk, in the order of the calls."""
    with server.client() as client:
        client.echo("the end")
    sha = load("depth", "_clock").sha
    while (command := monitor.next_command())["command"] != "ECHO the end":
        _, _, arguments = command["command"].partition(f" {sha} ")
        if arguments and (cursor := arguments.rpartition(f" {ENTRIES} ")[2]):
            yield cursor


def test_the_walks_of_a_caller_go_on_one_after_the_other(
    service: ServiceThread, channel: grpc.Channel, tickwheel_server: PrivateServer
) -> None:
    free = generic_client(channel, FREE)
    with tickwheel_server.client() as client, client.monitor() as monitor, ThreadPoolExecutor(MANY) as threads:
        assert free.call("GetDepth", **WALK) == {"pending": "0"}
        assert {call.result()["pending"] for call in walk_many(free, threads)} == {"0"}
        made = list(cursors(monitor, tickwheel_server))
    one_walk = made[: STEPS - 1]
    assert len(set(one_walk)) == STEPS - 1
    assert made == one_walk * (1 + MANY)


def test_a_caller_whose_walks_wait_for_its_rate_delays_no_other_caller(
    service: ServiceThread, channel: grpc.Channel, tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WALK_WAIT_S", 600.0)
    other = generic_client(channel, OTHER)
    with tickwheel_server.client() as client, ThreadPoolExecutor(MANY) as threads:
        before = count_script_calls(client)
        with grpc.insecure_channel(service.target, [("grpc.use_local_subchannel_pool", 1)]) as slow_channel:
            with frozen(client):
                walks = walk_many(generic_client(slow_channel, SLOW), threads)
                eventually(lambda: in_flight(service, "GetDepth") == MANY, "all calls wait for the Redis server")
            # Every first call is made, also those for which the process has no more room to build answers. The calls
            # of the first walk overdraw the rate by ten seconds.
            eventually(
                lambda: count_script_calls(client) - before >= MANY + STEPS - 1, "one walk has ended, the others wait"
            )
            assert other.call("GetDepth", **WALK) == {"pending": "0"}
            assert other.call("Dequeue", **WALK) == {"deliveries": []}
            assert in_flight(service, "GetDepth") == MANY - 1
        assert sum(walk.exception() is None for walk in walks) == 1


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        pytest.param(None, grpc.StatusCode.UNAUTHENTICATED, id="removed"),
        pytest.param('queues = ["other"]', grpc.StatusCode.UNAVAILABLE, id="narrowed"),
    ],
)
@pytest.mark.usefixtures("service")
def test_a_walk_that_waits_ends_if_its_token_is_removed_or_changes(
    tickwheel_server: PrivateServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rest: str | None,
    code: grpc.StatusCode,
) -> None:
    monkeypatch.setattr(limits, "WALK_WAIT_S", 600.0)
    other = entry(OTHER, '["consume"]')
    with walks_in_line(tickwheel_server, tmp_path, other) as (_, walks):
        changed = [] if rest is None else [entry(WALKING, '["consume"]', WALKING_FIELDS + rest)]
        write_token_file(tmp_path, other, *changed)
        ended = [walk.exception(20) for walk in walks]
    assert [error.code() for error in ended if isinstance(error, grpc.RpcError)] == [code] * (MANY - 1)


def test_a_walk_waits_for_the_rate_only_for_a_short_time(
    service: ServiceThread, channel: grpc.Channel, tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WALK_WAIT_S", 0.1)
    last = generic_client(channel, LAST)
    with tickwheel_server.client() as redis, ThreadPoolExecutor(5) as threads:
        with frozen(redis):
            walks = [threads.submit(last.call, "GetDepth", **WALK, timeout=20) for _ in range(5)]
            eventually(lambda: in_flight(service, "GetDepth") == 5, "all calls wait for the Redis server")
        # Each walk overdraws the rate by ten messages, so the last one would otherwise wait for more than 20 s.
        assert {walk.result()["pending"] for walk in walks} == {"0"}


def test_a_search_that_waits_for_the_rate_of_its_caller_does_not_delay_the_equal_search_of_another_caller(
    service: ServiceThread, channel: grpc.Channel, tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WALK_WAIT_S", 600.0)
    # No further search of the caller begins while one is slow.
    monkeypatch.setattr(shared_searches, "SWEEP_S", 600.0)
    other = generic_client(channel, OTHER)
    with (
        tickwheel_server.client() as redis,
        ThreadPoolExecutor(MANY + 1) as threads,
        grpc.insecure_channel(service.target, [("grpc.use_local_subchannel_pool", 1)]) as waiting_channel,
    ):
        waiting = generic_client(waiting_channel, WAITING)
        before = count_script_calls(redis)
        with frozen(redis):
            walk_many(waiting, threads)
            search = threads.submit(waiting.call, "Dequeue", **WALK, wait_ms=60_000, timeout=60)
            eventually(lambda: in_flight(service, "GetDepth") == MANY, "all calls wait for the Redis server")
            eventually(lambda: in_flight(service, "Dequeue") == 1, "the search waits for the Redis server")
        # The calls of the first walk overdraw the rate by ten seconds.
        eventually(lambda: count_script_calls(redis) - before >= MANY + STEPS, "one walk has ended, the others wait")
        assert other.call("Dequeue", **WALK, wait_ms=100, timeout=5) == {"deliveries": []}
        assert not search.done()


@pytest.mark.usefixtures("service")
def test_a_stop_answers_the_calls_whose_walks_wait_in_line(tickwheel_server: PrivateServer, tmp_path: Path) -> None:
    with walks_in_line(tickwheel_server, tmp_path) as (serving, walks):
        serving.stop()
        assert {walk.result(20)["pending"] for walk in walks} == {"0"}


def retry_info(refused: Any) -> RetryInfo:
    status = Status.FromString(dict(refused.trailing_metadata())["grpc-status-details-bin"])
    retry = RetryInfo()
    assert status.details[1].Unpack(retry)
    return retry


@pytest.mark.parametrize("name", list(RATED))
def test_each_script_call_of_a_walk_counts_as_a_message(channel: grpc.Channel, name: str) -> None:
    rated = generic_client(channel, RATED[name])
    if name == "DequeueBatch":
        assert len(rated.call_for_many(name, requests=[REQUEST])) == 1
    else:
        rated.call(name, **WALK)
    with pytest.raises(grpc.RpcError) as refused:
        rated.call("GetCounts", **QUEUE)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    retry = retry_info(refused.value)
    # The burst is 5, and a message more is allowed each second.
    assert STEPS - 5 - 3 < retry.retry_delay.ToTimedelta().total_seconds() <= STEPS - 5
