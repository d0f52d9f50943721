"""Operations on namespaces with many queues read the queues in pages, and never all of them at once."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.command_stats import calls_of
from tests.support.held_plan import HeldPlan
from tickwheel import Tickwheel
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.queues import list_queues
from tickwheel.operations.removal.delete_namespace import delete_namespace
from tickwheel.operations.removal.queue_pages import PAGE_ROWS
from tickwheel.storage.keys import queues_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

NAMESPACE = "queue-pages"
PAGES = 8
QUEUES = PAGES * PAGE_ROWS
# Almost certainly, some of their placeholders have a place in the first half of the pages.
DELETED = 40


@pytest.fixture
def tickwheel(tickwheel_server: PrivateServer, server: Any) -> Iterator[Tickwheel]:
    """Return a client of a namespace with many queues, of which no shard knows a version."""
    with Tickwheel(tickwheel_server.url, namespace=NAMESPACE, shards=2, drive=False) as tickwheel:
        settings = QueueConfig().to_bytes()
        rows = {f"q{n}": n.to_bytes(8) + n.to_bytes(2) + settings for n in range(1, QUEUES + 1)}
        server.hset(queues_key(NAMESPACE), mapping=rows)
        yield tickwheel
    tickwheel_server.clear(NAMESPACE)


def test_a_list_reads_pages(tickwheel: Tickwheel, server: Any) -> None:
    before = [calls_of(server, name) for name in ("hscan", "hgetall")]
    names = [queue.name for queue in tickwheel.queues()]
    pages, whole = (calls_of(server, name) - then for name, then in zip(("hscan", "hgetall"), before, strict=True))
    assert names == sorted(f"q{n}" for n in range(1, QUEUES + 1))
    assert whole == 0
    # Two buckets of the hash table can be empty or have several rows, so pages differ in size.
    assert PAGES // 2 <= pages <= 2 * PAGES + 1


def test_a_list_is_read_once_if_queues_are_deleted_meanwhile(tickwheel: Tickwheel, server: Any) -> None:
    pages = -calls_of(server, "hscan")
    tickwheel.queues()
    pages += (before := calls_of(server, "hscan"))
    tickwheel._context.configs.clear()
    held = HeldPlan(tickwheel, list_queues(tickwheel._context))
    for _ in range(PAGES // 2):
        assert held.run_until_command("HSCAN")
        assert held.run_steps(1)
    assert held.run_until_command("HSCAN")
    names = {f"q{n}" for n in range(1, QUEUES + 1)}
    deleted = sorted(names - tickwheel._context.configs.keys())[:DELETED]
    for name in deleted:
        tickwheel.delete_queue(name)
    assert held.finish().keys() == names - set(deleted)
    assert calls_of(server, "hscan") - before < 1.5 * pages


def test_the_deletion_of_a_namespace_reads_pages_and_decodes_no_configuration(
    tickwheel: Tickwheel, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[str] = []

    def record(queue: str, data: bytes) -> None:
        decoded.append(queue)

    monkeypatch.setattr(QueueConfig, "from_bytes", record)
    before = [calls_of(server, name) for name in ("hscan", "hgetall")]
    tickwheel._run(delete_namespace(tickwheel._context))
    pages, whole = (calls_of(server, name) - then for name, then in zip(("hscan", "hgetall"), before, strict=True))
    assert (decoded, whole) == ([], 0)
    # The first step, and one step for each of the two shards.
    assert 3 * PAGES // 2 <= pages <= 3 * (2 * PAGES + 1)
    assert not server.keys(f"{NAMESPACE}:*")
