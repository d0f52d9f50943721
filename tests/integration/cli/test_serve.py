"""`tickwheel serve` and `dev` as processes: they refuse incomplete options, or serve until a signal."""

import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from tests.integration.cli.command_runner import ENDS_S, TICKWHEEL, Start
from tests.integration.generic_client import GenericClient
from tests.security.http2 import DeafClient
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.service.token_file import TokenFile
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING
UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN
CERTS = Path(__file__).parents[2] / "fault" / "certs"

SERVE = ("serve", "--drive", "never")


def test_a_client_continues_with_another_service_process_after_its_own_has_ended(
    start: Start, tickwheel_server: PrivateServer, namespace: str
) -> None:
    service = start(*SERVE, "--url", tickwheel_server.url, "--listen", "127.0.0.1:0")
    with Tickwheel(service.url, namespace=namespace) as tickwheel:
        orders = tickwheel.create_queue("orders")
        orders.enqueue(b"1", id="a")
        [message] = orders.dequeue()
        service.send_signal(signal.SIGTERM)
        assert service.wait(ENDS_S) == 0
        start(*SERVE, "--url", tickwheel_server.url, "--listen", service.target)
        message.complete()
        assert orders.counts()["completed"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_waiting_dequeue_is_answered_at_once_when_the_service_stops(
    start: Start, tickwheel_server: PrivateServer, namespace: str, number: signal.Signals
) -> None:
    service = start(*SERVE, "--url", tickwheel_server.url, "--listen", "127.0.0.1:0", "--drain", "60s")
    with Tickwheel(service.url, namespace=namespace) as tickwheel, tickwheel_server.client() as client:
        orders = tickwheel.create_queue("orders")
        answers: list[object] = []
        waiting = threading.Thread(target=lambda: answers.append(orders.dequeue(wait=timedelta(minutes=1))))
        waiting.start()
        channel = f"{namespace}:{{0}}:q:orders:wake"
        eventually(lambda: client.execute_command("PUBSUB", "SHARDNUMSUB", channel)[1], "it waits")
        service.send_signal(number)
        waiting.join(ENDS_S)
        assert answers == [[]]
    assert service.wait(ENDS_S) == 0


@pytest.mark.parametrize("method", ["DequeueStream", "EnqueueStream"])
def test_idle_streams_end_at_once_when_the_service_stops_and_may_be_opened_again(
    start: Start, tickwheel_server: PrivateServer, namespace: str, method: str
) -> None:
    service = start(*SERVE, "--url", tickwheel_server.url, "--listen", "127.0.0.1:0", "--drain", "60s")
    target, never = service.target, threading.Event()
    with grpc.insecure_channel(target) as channel, Tickwheel(service.url, namespace=namespace) as tickwheel:
        generic_client, jobs = GenericClient(channel), tickwheel.create_queue("jobs")
        where = {"namespace": namespace, "queue": "jobs"}
        failed: list[grpc.RpcError] = []

        def without_end(first: dict[str, Any]) -> Iterator[dict[str, Any]]:
            yield first
            never.wait()

        def dequeue() -> None:
            # The credit of the stream is used up, and no message follows.
            for _ in generic_client.stream("DequeueStream", without_end(where | {"credit": 1}), 60):
                pass

        def enqueue() -> None:
            generic_client.send_many("EnqueueStream", without_end(where | {"messages": [{"id": "b"}]}), 60)

        def call() -> None:
            try:
                dequeue() if method == "DequeueStream" else enqueue()
            except grpc.RpcError as error:
                failed.append(error)

        if method == "DequeueStream":
            jobs.enqueue(b"x", id="a")
        streaming = threading.Thread(target=call, daemon=True)
        streaming.start()
        state = "running" if method == "DequeueStream" else "pending"
        eventually(lambda: jobs.counts()[state] == 1, "the first message has arrived")
        service.send_signal(signal.SIGTERM)
        streaming.join(ENDS_S)
        assert [error.code() for error in failed] == [grpc.StatusCode.UNAVAILABLE]
        assert "open a new stream" in str(failed[0].details())
    assert service.wait(ENDS_S) == 0
    never.set()


def test_idle_calls_of_health_and_reflection_end_at_once_when_the_service_stops(
    start: Start, tickwheel_server: PrivateServer
) -> None:
    service = start(*SERVE, "--url", tickwheel_server.url, "--listen", "127.0.0.1:0", "--drain", "60s")
    never = threading.Event()
    with grpc.insecure_channel(service.target) as channel:
        health: Any = HealthStub(channel)
        watches = [health.Watch(HealthCheckRequest(service=name), timeout=60) for name in ("", "unknown")]
        assert [next(watch).status for watch in watches] == [SERVING, UNKNOWN]
        requests = chain([ServerReflectionRequest(list_services="")], iter(never.wait, None))
        reflection: Any = ServerReflectionStub(channel)
        answers = reflection.ServerReflectionInfo(requests, timeout=60)
        assert next(answers).list_services_response.service
        service.send_signal(signal.SIGTERM)
        assert [[answer.status for answer in watch] for watch in watches] == [[NOT_SERVING], []]
        assert list(answers) == []
        assert service.wait(ENDS_S) == 0
    never.set()


def test_several_processes_serve_one_namespace_on_one_port(
    start: Start, tickwheel_server: PrivateServer, namespace: str
) -> None:
    options = ["--url", tickwheel_server.url, "--listen", "127.0.0.1:0", "--processes", "3"]
    service = start(*SERVE, *options)
    ids: set[str] = set()
    for n in range(20):
        # Each client has its own connection, so that different processes may serve them.
        with Tickwheel(service.url, namespace=namespace) as tickwheel:
            tickwheel.queue("jobs").enqueue(b"x", id=f"m{n}")
            ids.update(message.id for message in tickwheel.queue("jobs").dequeue())
    assert ids == {f"m{n}" for n in range(20)}
    service.send_signal(signal.SIGTERM)
    assert service.wait(ENDS_S) == 0


def test_dev_runs_server_service_and_event_process(start: Start, tmp_path: Path) -> None:
    service = start("dev", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    command = [*TICKWHEEL, "--url", service.url]
    subprocess.run([*command, "enqueue", "orders", "soon", "--delay", "300ms"], check=True, timeout=ENDS_S)
    done = subprocess.run(
        [*command, "dequeue", "orders", "--wait", "20s", "--raw", "--complete"],
        check=True,
        timeout=ENDS_S,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "soon\n"
    [serving] = [line for line in service.log.splitlines() if "serving" in line]
    assert re.search(
        rf"INFO tickwheel.service: serving {service.url}, with the embedded server in {tmp_path}$", serving
    )
    service.send_signal(signal.SIGTERM)
    assert service.wait(ENDS_S) == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--listen", "0.0.0.0:0"], "without encryption"),
        (["--listen", "none"], "must be HOST:PORT"),
        (["--listen", "127.0.0.1:70000"], "must be HOST:PORT"),
        (["--listen", "127.0.0.1:" + "9" * 5_000], "must be HOST:PORT"),
        (["--listen", "0.0.0.0:0", "--tokens", "none.toml"], "use --tls-cert"),
        (["--tokens", "none.toml"], "cannot be read"),
        (["--tls-cert", str(CERTS / "server.pem")], "give both --tls-cert and --tls-key"),
        (["--tls-client-ca", str(CERTS / "server.pem")], "needs --tls-cert"),
        (["--url", "grpc://localhost:1"], "not a grpc:// service"),
        (["--drain", "soon"], "a duration is written like"),
    ],
)
def test_serve_refuses_incomplete_options_before_it_listens(options: list[str], text: str) -> None:
    done = subprocess.run([*TICKWHEEL, "serve", *options], capture_output=True, text=True, timeout=ENDS_S, check=False)
    assert done.returncode == 2, done.stderr
    assert text in " ".join(done.stderr.split())


def test_token_prints_a_token_and_its_entry_for_the_file(tmp_path: Path) -> None:
    done = subprocess.run([*TICKWHEEL, "token", "shop"], capture_output=True, text=True, timeout=ENDS_S, check=True)
    token, _, entry = done.stdout.partition("\n")
    path = tmp_path / "tokens.toml"
    path.touch(0o600)
    path.write_text(entry)
    assert TokenFile(path).token_store.authenticate((("authorization", f"Bearer {token}"),)).name == "shop"


@pytest.mark.parametrize("command", [["events"], ["shards"], ["doctor"], ["bench"], ["demo"]])
def test_commands_that_need_the_server_itself_refuse_a_service_url(command: list[str]) -> None:
    done = subprocess.run(
        [*TICKWHEEL, *command, "--url", "grpc://127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        check=False,
    )
    assert done.returncode == 2
    assert f"{command[0]} works on the Redis or Valkey server itself" in done.stderr


@pytest.mark.parametrize("processes", ["1", "2"])
def test_serve_creates_its_namespace_with_the_given_shards(
    start: Start, tickwheel_server: PrivateServer, namespace: str, processes: str
) -> None:
    options = ("--namespace", namespace, "--shards", "4", "--processes", processes)
    start(*SERVE, "--url", tickwheel_server.url, "--listen", "127.0.0.1:0", *options)
    with Tickwheel(tickwheel_server.url, namespace=namespace, existing=True) as tickwheel:
        assert tickwheel._context.shards == 4


def test_clients_that_end_calls_while_they_are_answered_do_not_fill_the_log(
    start: Start, tickwheel_server: PrivateServer
) -> None:
    service = start(*SERVE, "--url", tickwheel_server.url, "--listen", "127.0.0.1:0")
    with grpc.insecure_channel(service.target) as channel:
        health: Any = HealthStub(channel)
        for _ in range(5):
            deaf = DeafClient(service.target)
            deaf.call("/grpc.health.v1.Health/Check", HealthCheckRequest(), 50)
            assert health.Check(HealthCheckRequest()).status == SERVING
            deaf.cancel()
            assert health.Check(HealthCheckRequest()).status == SERVING
            deaf.close()
    service.send_signal(signal.SIGTERM)
    assert service.wait(ENDS_S) == 0
    assert service.log.count("Traceback") <= 1
