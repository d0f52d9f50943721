"""The log of the service: a line with fields for each kind of refused or failed calls, and none for other calls."""

import io
import json
import logging
import signal
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest

from services.serving_program import SERVE, ServingProgram
from tests.integration.cli.command_runner import ENDS_S
from tests.integration.generic_client import GenericClient
from tests.integration.service_thread import ServiceThread
from tests.security.tokens import entry, generic_client, write_token_file
from tests.support.wait_until import eventually
from tickwheel import Forbidden, InvalidArgument, MessageNotFound, OutOfMemory, Tickwheel, Unauthenticated
from tickwheel.rpc.methods import METHODS
from tickwheel.runtime.log_format import JsonLines
from tickwheel.testing import PrivateServer, sandbox
from tickwheel.testing.virtual_clock import FRAGMENT

pytestmark = pytest.mark.integration

TOKEN = "tw_shop"
LOG = logging.getLogger("tickwheel.service")


def test_the_library_writes_no_lines_of_its_own(tickwheel_server: PrivateServer, tmp_path: Path) -> None:
    with ServingProgram(tmp_path, *SERVE, tickwheel_server.url, "--json") as service:
        with grpc.insecure_channel(service.target) as channel:
            call: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
            with pytest.raises(grpc.RpcError, match="is disabled"):
                call(b"", timeout=20, compression=grpc.Compression.Gzip)
        service.send_signal(signal.SIGTERM)
        assert service.wait(ENDS_S) == 0
        *_, last = map(json.loads, service.log.splitlines())
        assert last["event"] == "ended"


def test_rejected_streams_whose_clients_send_more_requests_write_few_lines(
    tickwheel_server: PrivateServer, tmp_path: Path
) -> None:
    with ServingProgram(tmp_path, *SERVE, tickwheel_server.url, "--json") as service:
        with grpc.insecure_channel(service.target) as channel:
            client = GenericClient(channel)
            client.call("CreateQueue", queue="indexed-orders", settings={"indexed": {"keys": ["shop"]}})
            first = {"queue": "indexed-orders", "where": {"of": "1"}, "credit": 1}
            for _ in range(100):
                is_rejected = Event()
                requests: Any = chain([first], [{}] * 20, iter(is_rejected.wait, True))
                with pytest.raises(grpc.RpcError, match="does not index 'of'"):
                    list(client.stream("DequeueStream", requests))
                is_rejected.set()
        service.send_signal(signal.SIGTERM)
        assert service.wait(ENDS_S) == 0
        log = [json.loads(line) for line in service.log.splitlines()]
    assert not [line for line in log if "traceback" in line]
    assert len(log) < 10


class Lines:
    """The log lines, as `--json` writes them."""

    def __init__(self) -> None:
        self.text = io.StringIO()

    def calls(self) -> list[dict[str, Any]]:
        log = map(json.loads, self.text.getvalue().splitlines())
        return [line for line in log if line.get("event") == "call"]

    def of_calls(self) -> list[dict[str, Any]]:
        """Return the lines of single calls and of repeated calls."""
        log = map(json.loads, self.text.getvalue().splitlines())
        return [line for line in log if line.get("event") in ("call", "repeated calls")]


@pytest.fixture
def lines() -> Iterator[Lines]:
    log = Lines()
    handler = logging.StreamHandler(log.text)
    handler.setFormatter(JsonLines())
    before = LOG.level
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    yield log
    LOG.removeHandler(handler)
    LOG.setLevel(before)


@pytest.fixture
def service(tickwheel_server: PrivateServer, lines: Lines, tmp_path: Path) -> Iterator[ServiceThread]:
    rights = 'queues = ["orders"]\nnamespaces = ["*"]'
    tokens = write_token_file(tmp_path, entry(TOKEN, '["produce"]', rights))
    with ServiceThread(tickwheel_server.url, FRAGMENT, tokens=tokens) as serving:
        yield serving


@pytest.fixture
def tw(tickwheel_server: PrivateServer, service: ServiceThread) -> Iterator[Tickwheel]:
    with (
        sandbox(tickwheel_server) as (direct, _),
        Tickwheel(f"grpc://:{TOKEN}@{service.target}", namespace=direct._context.namespace) as client,
    ):
        direct.create_queue("orders", exclusive_key="of")
        yield client


def test_a_successful_call_is_not_logged(tw: Tickwheel, lines: Lines) -> None:
    tw.queue("orders").enqueue(metadata={"of": "1"})
    assert not lines.calls()


def test_every_call_is_logged_at_debug_level(tw: Tickwheel, lines: Lines) -> None:
    LOG.setLevel(logging.DEBUG)
    tw.queue("orders").enqueue(metadata={"of": "1"})
    [line] = eventually(lines.calls, "the call is logged")
    assert (line["level"], line["method"], line["code"]) == ("DEBUG", "EnqueueBatch", "OK")


def test_a_refused_call_is_logged_with_its_caller_and_reason(tw: Tickwheel, lines: Lines) -> None:
    with pytest.raises(MessageNotFound):
        tw.queue("orders").get("nobody", "1")
    [line] = eventually(lines.calls, "the call is logged")
    assert (line["method"], line["level"], line["code"], line["token"]) == ("GetMessage", "INFO", "NOT_FOUND", "shop")
    assert line["peer"].startswith("ipv4:127.0.0.1:")
    assert 0 < line["duration_ms"] < 30_000
    assert "nobody" in line["reason"]
    assert line["text"].startswith("GetMessage of shop at ipv4:127.0.0.1:")


def test_a_call_that_its_client_cancels_before_it_is_refused_is_no_failure_and_quotes_nothing(
    tw: Tickwheel, service: ServiceThread, lines: Lines
) -> None:
    refused = {"queue": "orders", "messages": [{"metadata": {"secret" * 20: ""}}]}
    request = METHODS["EnqueueStream"].request(**refused).SerializeToString()
    counters = service.server.counters.methods["EnqueueStream"]
    with grpc.insecure_channel(service.target) as channel:
        call: Any = channel.stream_unary(METHODS["EnqueueStream"].path)
        for _ in range(20):
            go_on, is_sent = Event(), Event()

            def requests(go_on: Event, is_sent: Event) -> Iterator[bytes]:
                go_on.wait(ENDS_S)
                yield request
                is_sent.set()

            future = call.future(requests(go_on, is_sent), metadata=[("authorization", f"Bearer {TOKEN}")])
            eventually(lambda: counters.in_flight, "the service waits for the request")
            with service.blocked():
                go_on.set()
                assert is_sent.wait(ENDS_S)
                future.cancel()
    eventually(lambda: not counters.in_flight, "all calls have ended")
    assert not [line for line in lines.of_calls() if line["code"] == "UNKNOWN" or "secret" in line.get("reason", "")]


def test_forbidden_and_unauthenticated_calls_are_logged(tw: Tickwheel, service: ServiceThread, lines: Lines) -> None:
    with pytest.raises(Forbidden):
        tw.queue("orders").dequeue()
    with pytest.raises(Unauthenticated):
        Tickwheel(f"grpc://:tw_foreign@{service.target}")
    calls = eventually(lambda: lines.calls() if len(lines.calls()) == 2 else None, "both calls are logged")
    assert [(line["code"], line["token"]) for line in calls or ()] == [
        ("PERMISSION_DENIED", "shop"),
        ("UNAUTHENTICATED", "nobody"),
    ]
    assert "tw_foreign" not in lines.text.getvalue()
    assert TOKEN not in lines.text.getvalue()


def test_a_wrong_argument_is_quoted_at_debug_level_only(tw: Tickwheel, lines: Lines) -> None:
    for level in (logging.INFO, logging.DEBUG):
        LOG.setLevel(level)
        before = len(lines.calls())
        with pytest.raises(InvalidArgument, match="4111"):
            tw.queue("orders").enqueue(metadata={"4111": "of somebody"})
        eventually(lambda before=before: lines.calls()[before:], "its line")  # type: ignore[misc]
    assert ["4111" in str(line) for line in lines.calls()] == [False, True]


def test_a_failed_call_is_logged_as_a_warning(tw: Tickwheel, lines: Lines, tickwheel_server: PrivateServer) -> None:
    with tickwheel_server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(OutOfMemory):
                tw.queue("orders").enqueue(metadata={"of": "1"})
        finally:
            client.config_set("maxmemory", 0)
    [line] = eventually(lines.calls, "the call is logged")
    assert (line["level"], line["code"]) == ("WARNING", "RESOURCE_EXHAUSTED")


def test_equal_refused_calls_write_few_lines_and_the_last_one_has_their_number(
    tickwheel_server: PrivateServer, lines: Lines, tmp_path: Path
) -> None:
    tokens = write_token_file(tmp_path, entry(TOKEN, '["produce"]', 'namespaces = ["*"]'))
    with (
        ServiceThread(tickwheel_server.url, tokens=tokens) as service,
        grpc.insecure_channel(service.target) as channel,
    ):
        foreign = generic_client(channel, "tw_foreign")
        for _ in range(1_000):
            with pytest.raises(grpc.RpcError):
                foreign.call("Enqueue", namespace="shop", queue="orders", message={})
        codes = service.server.counters.methods["Enqueue"].codes
        eventually(lambda: codes["UNAUTHENTICATED"] == 1_000, "the metric counts each call")
    first, *repeated = lines.of_calls()
    assert (first["event"], first["code"], first["token"]) == ("call", "UNAUTHENTICATED", "nobody")
    assert len(repeated) < 10
    assert 1 + sum(line["count"] for line in repeated) == 1_000
    last = repeated[-1]
    assert (last["level"], last["method"], last["caller"]) == ("INFO", "Enqueue", "the address 127.0.0.1")
    assert last["text"].endswith(f"UNAUTHENTICATED for {last['count']} more calls, which were not logged")


def test_a_refused_call_of_another_kind_has_a_line_of_its_own(tw: Tickwheel, lines: Lines) -> None:
    orders = tw.queue("orders")
    for _ in range(3):
        with pytest.raises(MessageNotFound):
            orders.get("nobody", "1")
        with pytest.raises(Forbidden):
            orders.dequeue()
    assert [line["code"] for line in lines.calls()] == ["NOT_FOUND", "PERMISSION_DENIED"]
