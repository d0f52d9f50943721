"""The log of the service: one line with fields for each refused or failed call, and none for other calls."""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.service_thread import ServiceThread
from tests.security.tokens import entry, write_token_file
from tests.support.wait_until import eventually
from tickwheel import Forbidden, InvalidArgument, MessageNotFound, OutOfMemory, Tickwheel, Unauthenticated
from tickwheel.runtime.log_format import JsonLines
from tickwheel.testing import PrivateServer, sandbox
from tickwheel.testing.virtual_clock import FRAGMENT

pytestmark = pytest.mark.integration

TOKEN = "tw_shop"
LOG = logging.getLogger("tickwheel.service")


class Lines:
    """The log lines, as `--json` writes them."""

    def __init__(self) -> None:
        self.text = io.StringIO()

    def calls(self) -> list[dict[str, Any]]:
        log = map(json.loads, self.text.getvalue().splitlines())
        return [line for line in log if line.get("event") == "call"]


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
