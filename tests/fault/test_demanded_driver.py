"""A client with `drive=True` drives a namespace that nobody else drives, and leaves it to `tickwheel events`."""

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.fault.event_processes import EventProcessChild
from tests.fault.shard_owners import LeaseOwners
from tests.support.lock_file_driver import driving_with_lock_file
from tests.support.promotion import SETTLED_S, await_promotion
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.election.unclaimed_shards import UNCLAIMED_MS
from tickwheel.storage.keys import election_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.fault

SOON = timedelta(milliseconds=50)


@pytest.fixture
def watcher(tickwheel_server: PrivateServer, namespace: str) -> Iterator[Tickwheel]:
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=2) as client:
        yield client


@pytest.fixture
def leaders(watcher: Tickwheel, server: Any) -> LeaseOwners:
    return LeaseOwners(watcher, server)


def test_it_drives_a_new_namespace_without_a_wait(
    tickwheel_server: PrivateServer, watcher: Tickwheel, leaders: LeaseOwners, server: Any
) -> None:
    key = election_key(watcher._context.namespace)
    with Tickwheel(tickwheel_server.url, namespace=watcher._context.namespace, drive=True):
        # The child may start slowly.
        eventually(lambda: server.exists(key), "the child takes part in the election", SETTLED_S)
        # A candidate that waits for event processes would need more time.
        eventually(lambda: "" not in leaders.now(), "the child drives", 0.9 * UNCLAIMED_MS / 1000)
        await_promotion(watcher, "jobs", SOON)


def test_an_event_process_takes_its_shards(
    tickwheel_server: PrivateServer, watcher: Tickwheel, leaders: LeaseOwners, tmp_path: Path
) -> None:
    namespace = watcher._context.namespace
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=True):
        eventually(lambda: "" not in leaders.now(), "the client drives", SETTLED_S)
        with EventProcessChild(tickwheel_server.url, namespace, tmp_path / "events", election="lease") as events:
            leaders.settle(events, within=SETTLED_S)
            events.stop()
        await_promotion(watcher, "jobs", SOON)


def test_shards_of_a_running_event_process_with_lock_files_stay_with_it(
    tickwheel_server: PrivateServer, watcher: Tickwheel, leaders: LeaseOwners
) -> None:
    namespace = watcher._context.namespace
    with driving_with_lock_file(tickwheel_server.url, namespace):
        # The process claims one shard after the other, and a promotion needs only one of them.
        eventually(lambda: None not in leaders.fences(), "the event process drives both shards", SETTLED_S)
        await_promotion(watcher, "jobs", SOON)
        fences = leaders.fences()
        with Tickwheel(tickwheel_server.url, namespace=namespace, drive=True) as client:
            child = client._processes._child
            assert child is not None
            eventually(lambda: child.pid is not None, "the child of the client runs", SETTLED_S)
            await_promotion(client, "jobs", SOON)
            assert leaders.fences() == fences
    assert leaders.read("election") == ["lockfile"] * 2


def test_a_namespace_of_lock_files_is_driven_as_before(
    tickwheel_server: PrivateServer, watcher: Tickwheel, leaders: LeaseOwners
) -> None:
    namespace = watcher._context.namespace
    with driving_with_lock_file(tickwheel_server.url, namespace):
        await_promotion(watcher, "jobs", SOON)
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=True) as client:
        await_promotion(client, "jobs", SOON)
        eventually(lambda: None not in leaders.fences(), "the child of the client drives both shards", SETTLED_S)
    assert leaders.read("election") == ["lockfile"] * 2


def test_it_warns_if_it_does_not_drive(
    tickwheel_server: PrivateServer, watcher: Tickwheel, caplog: pytest.LogCaptureFixture
) -> None:
    watcher.create_queue("forwarded", sink="kafka://topic")
    with Tickwheel(tickwheel_server.url, namespace=watcher._context.namespace, drive=True):
        eventually(lambda: "delivers to a sink" in caplog.text, "the client warns", SETTLED_S)
    [record] = [record for record in caplog.records if "delivers to a sink" in record.getMessage()]
    assert record.levelno == logging.WARNING
