"""Only commands that add data create a missing namespace; all other commands report that it is missing."""

import asyncio
import json
import os
from collections.abc import Iterator

import pytest

from tests.integration.cli.command_runner import Run
from tickwheel import NamespaceNotFound, Tickwheel, aio
from tickwheel.storage.keys import namespace_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

TOKEN = ("--token", "00" * 16)
NEED_IT = (
    *(("shards",), ("shards", "reset-epoch", "--yes"), ("counts",), ("counts", "jobs"), ("depth", "jobs")),
    *(("get", "jobs", "x"), ("messages", "jobs"), ("explain", "jobs", "x"), ("forecast", "jobs"), ("doctor",)),
    *(("queue", "list"), ("queue", "show", "jobs"), ("queue", "block", "jobs"), ("queue", "unblock", "jobs")),
    *(("queue", "purge", "jobs", "--yes"), ("queue", "delete", "jobs", "--yes"), ("namespace", "delete", "--yes")),
    *(("route", "list"), ("route", "set", "a", "--to", "tickwheel"), ("route", "unset", "a")),
    *(("setting", "list"), ("setting", "get", "a"), ("setting", "set", "a", "b"), ("setting", "unset", "a")),
    *(("cancel", "jobs", "x"), ("reschedule", "jobs", "x", "--delay", "1s"), ("redrive", "jobs", "x")),
    *(("redrive", "jobs", "--all"), ("dequeue", "jobs"), ("complete", "jobs", "x", *TOKEN)),
    *(("fail", "jobs", "x", *TOKEN), ("release", "jobs", "x", *TOKEN), ("extend", "jobs", "x", "1m", *TOKEN)),
)
MAKE_IT = (("enqueue", "jobs", "x"), ("enqueue", "jobs", "--from", "-"), ("queue", "create", "jobs"))


@pytest.fixture
def missing_namespace(tickwheel_server: PrivateServer) -> Iterator[str]:
    namespace = f"nowhere-{os.urandom(6).hex()}"
    yield namespace
    tickwheel_server.clear(namespace)


def keys(server: PrivateServer, namespace: str) -> list[bytes]:
    with server.client() as client:
        return list(client.scan_iter(match=f"*{namespace}*"))


@pytest.mark.parametrize("command", NEED_IT, ids=" ".join)
def test_a_command_that_needs_a_namespace_reports_in_one_line_that_it_is_missing_and_creates_nothing(
    run: Run, tickwheel_server: PrivateServer, missing_namespace: str, command: tuple[str, ...]
) -> None:
    refused = run(*command, "--namespace", missing_namespace, code=4)
    assert refused.stderr.startswith(f"tickwheel: there is no namespace {missing_namespace!r} on this server: ")
    assert refused.stderr.count("\n") == 1
    assert keys(tickwheel_server, missing_namespace) == []


@pytest.mark.parametrize("command", MAKE_IT, ids=" ".join)
def test_a_command_that_adds_creates_the_namespace(run: Run, missing_namespace: str, command: tuple[str, ...]) -> None:
    run(*command, "--namespace", missing_namespace, stdin="{}\n")
    run("shards", "--namespace", missing_namespace)


def test_shards_and_history_are_still_free_to_choose_after_a_read_of_a_missing_namespace(
    run: Run, tickwheel_server: PrivateServer, missing_namespace: str
) -> None:
    run("shards", "--namespace", missing_namespace, code=4)
    with Tickwheel(tickwheel_server.url, namespace=missing_namespace, shards=64, history="relay"):
        assert len(json.loads(run("shards", "--namespace", missing_namespace, "--json").stdout)) == 64


def test_a_client_of_existing_namespaces_creates_none_and_accepts_any_settings(
    tickwheel_server: PrivateServer, missing_namespace: str
) -> None:
    def opened() -> Tickwheel:
        return Tickwheel(tickwheel_server.url, namespace=missing_namespace, existing=True)

    with pytest.raises(NamespaceNotFound, match=f"no namespace '{missing_namespace}'"):
        opened()
    with pytest.raises(NamespaceNotFound):
        asyncio.run(aio.Tickwheel(tickwheel_server.url, namespace=missing_namespace, existing=True).open())
    assert keys(tickwheel_server, missing_namespace) == []
    Tickwheel(tickwheel_server.url, namespace=missing_namespace, shards=3, auto_create=False).close()
    before = _settings(tickwheel_server, missing_namespace)
    with opened() as tickwheel:
        assert (tickwheel._context.shards, tickwheel._context.auto_create) == (3, False)
    assert _settings(tickwheel_server, missing_namespace) == before


def test_a_namespace_of_a_version_without_outboxes_opens_without_a_write(
    tickwheel_server: PrivateServer, missing_namespace: str
) -> None:
    Tickwheel(tickwheel_server.url, namespace=missing_namespace).close()
    with tickwheel_server.client() as client:
        client.hdel(namespace_key(missing_namespace), "outbox_kib", "outbox_full")
    before = _settings(tickwheel_server, missing_namespace)
    Tickwheel(tickwheel_server.url, namespace=missing_namespace, existing=True).close()
    assert _settings(tickwheel_server, missing_namespace) == before


def _settings(server: PrivateServer, namespace: str) -> dict[bytes, bytes]:
    with server.client() as client:
        return dict(client.hgetall(namespace_key(namespace)))
