"""The server becomes unreachable between two steps of one call or command: the error does not deny the first step."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.integration.service_thread import ServiceThread
from tickwheel import NewMessage, Tickwheel, Unavailable, aio
from tickwheel.cli import enqueue_file
from tickwheel.cli.app import app
from tickwheel.cli.commands import shards
from tickwheel.client.exit_codes import ExitCode
from tickwheel.client.grpc.grpc_remover import GrpcRemover
from tickwheel.client.redis_backend import RedisBackend
from tickwheel.operations.removal.delete_namespace import NamespaceDeletion
from tickwheel.operations.removal.delete_queue import QueueDeletion
from tickwheel.operations.removal.purge import Purge
from tickwheel.plan import Effects
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

TIMEOUT = timedelta(milliseconds=300)
NAMESPACE = "steps"
# More than one page of a purge.
MESSAGES = 300
Stop = Callable[..., None]
REMOVALS: dict[str, tuple[Any, Callable[[Tickwheel], int]]] = {
    "purge": (Purge, lambda client: client.queue("jobs").purge()),
    "delete_queue": (QueueDeletion, lambda client: client.delete_queue("jobs", purge=True)),
    "delete_namespace": (NamespaceDeletion, lambda client: client.delete_namespace()),
}


@pytest.fixture
def own_server() -> Iterator[PrivateServer]:
    with PrivateServer() as server:
        with Tickwheel(server.url, namespace=NAMESPACE, shards=2) as tickwheel:
            tickwheel.create_queue("jobs").enqueue_many(NewMessage() for _ in range(MESSAGES * 2))
        yield server


@pytest.fixture
def stop_before(own_server: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> Stop:
    """Return a function that makes a server stop before call number ``call`` of a function of the product."""

    def stop_before_call(owner: Any, name: str, call: int = 2, stop: Callable[[], None] = own_server.close) -> None:
        function, count = getattr(owner, name), 0

        def count_and_call(*args: Any) -> Any:
            nonlocal count
            count += 1
            if count == call:
                stop()
            return function(*args)

        monkeypatch.setattr(owner, name, count_and_call)

    return stop_before_call


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_removal_that_fails_at_its_second_step_may_have_happened(
    own_server: PrivateServer, stop_before: Stop, removal: str
) -> None:
    steps, remove = REMOVALS[removal]
    with Tickwheel(own_server.url, namespace=NAMESPACE, timeout=TIMEOUT) as tickwheel:
        stop_before(steps, "next")
        with pytest.raises(Unavailable, match=r"the call may have taken effect$") as raised:
            remove(tickwheel)
    assert raised.value.may_have_happened


@pytest.mark.parametrize("removal", REMOVALS)
def test_a_removal_through_the_service_that_fails_at_its_second_step_may_have_happened(
    own_server: PrivateServer, stop_before: Stop, removal: str
) -> None:
    with (
        ServiceThread(own_server.url) as service,
        Tickwheel(service.url, namespace=NAMESPACE, timeout=TIMEOUT) as tickwheel,
    ):
        stop_before(GrpcRemover, "next", stop=service.stop)
        with pytest.raises(Unavailable, match=r"the call may have taken effect$") as raised:
            REMOVALS[removal][1](tickwheel)
    assert raised.value.may_have_happened


@pytest.mark.parametrize("over", ["redis", "grpc"])
def test_the_asyncio_executors_know_the_effects_of_earlier_steps(own_server: PrivateServer, over: str) -> None:
    async def purge(service: ServiceThread) -> None:
        url = own_server.url if over == "redis" else service.url
        async with aio.Tickwheel(url, namespace=NAMESPACE, timeout=TIMEOUT) as tickwheel:
            steps, effects = tickwheel._backend.purge("jobs", None), Effects()
            await tickwheel._run(steps.next(), effects)
            await asyncio.to_thread(service.stop)
            own_server.close()
            # After this call, the client has no open connection, so it sends nothing.
            with suppress(Unavailable):
                await tickwheel.queue("jobs").counts()
            await tickwheel._run(steps.next(), effects)

    with ServiceThread(own_server.url) as service, pytest.raises(Unavailable) as raised:
        asyncio.run(purge(service))
    assert raised.value.may_have_happened


def test_a_call_that_fails_at_its_first_step_certainly_had_no_effect(
    own_server: PrivateServer, stop_before: Stop
) -> None:
    with Tickwheel(own_server.url, namespace=NAMESPACE, timeout=TIMEOUT) as tickwheel:
        stop_before(Purge, "next", 1)
        with pytest.raises(Unavailable, match=r"nothing was done$") as raised:
            tickwheel.queue("jobs").purge()
    assert not raised.value.may_have_happened


def test_chunks_through_the_service_count_as_one_call(own_server: PrivateServer) -> None:
    with ServiceThread(own_server.url) as service:

        def messages() -> Iterator[NewMessage]:
            # The client sends chunks of 1,000 messages.
            yield from (NewMessage() for _ in range(1_500))
            service.stop()
            yield from (NewMessage() for _ in range(1_000))

        with (
            Tickwheel(service.url, namespace=NAMESPACE, timeout=TIMEOUT) as tickwheel,
            pytest.raises(Unavailable) as raised,
        ):
            tickwheel.queue("jobs").enqueue_many(messages())
    assert raised.value.may_have_happened


COMMANDS: dict[str, tuple[Any, str, tuple[str, ...]]] = {
    "purge": (Purge, "next", ("queue", "purge", "jobs", "--yes")),
    "delete": (QueueDeletion, "next", ("queue", "delete", "jobs", "--purge", "--yes")),
    "namespace delete": (NamespaceDeletion, "next", ("namespace", "delete", "--yes")),
    "reset-epoch": (shards, "reset_epoch", ("shards", "reset-epoch", "--yes")),
    # The command reads the configuration before the block and after it.
    "block": (RedisBackend, "config", ("queue", "block", "jobs")),
    "enqueue": (RedisBackend, "enqueue_many", ("enqueue", "jobs", "--from", "lines.jsonl")),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_fails_after_a_change_says_so(
    own_server: PrivateServer, stop_before: Stop, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(enqueue_file, "_BATCH", 1)
    Path("lines.jsonl").write_text('{"id": "a"}\n{"id": "b"}\n')
    with own_server.client() as redis:
        redis.hset(shard_key(NAMESPACE, 0, "clock"), "owner", "host:1")
    owner, function, arguments = COMMANDS[command]
    stop_before(owner, function)
    options = ("--url", own_server.url, "--namespace", NAMESPACE, "--timeout", "300ms")
    result = CliRunner().invoke(app, [*arguments, *options])
    assert result.exit_code == ExitCode.UNAVAILABLE, result.output
    assert result.stderr.endswith("the call may have taken effect\n")
