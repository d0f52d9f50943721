"""A list costs what it has read: the rate of a token bounds the lists of many queues and messages, too."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.integration.service_thread import ServiceThread
from tests.security.tokens import entry, generic_client, write_token_file
from tickwheel import InvalidArgument, NewMessage, Tickwheel, limits
from tickwheel.operations.removal.queue_pages import PAGE_ROWS
from tickwheel.service import dequeue_batch, message_handlers, queue_handlers
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

NAMESPACE = "service-lists"
READER, ELSEWHERE, CREATOR = "tw_reader-Of-Lists", "tw_elsewhere-Of-Lists", "tw_creator-Of-Lists"
QUEUES = 96
FIELDS: dict[str, Any] = {
    # No message has this state.
    "ListMessages": {"queue": "q0", "state": "STATE_COMPLETED"},
    "Dequeue": {"queue": "q0", "limit": 320, "request_id": "lists:1"},
}


async def fail(*_: object) -> None:
    raise InvalidArgument("the call ends")


@pytest.fixture(scope="module")
def server(tickwheel_server: PrivateServer) -> Iterator[PrivateServer]:
    with Tickwheel(tickwheel_server.url, namespace=NAMESPACE, shards=1, drive=False) as tickwheel:
        for n in range(QUEUES):
            tickwheel.create_queue(f"q{n}")
        tickwheel.queue("q0").enqueue_many(NewMessage(b"x") for _ in range(320))
    yield tickwheel_server
    tickwheel_server.clear(NAMESPACE)


@pytest.mark.parametrize(
    ("token", "method", "cost"),
    [
        # 96 queues of the answer and 96 rows; 96 rows; 320 messages that are read; 320 messages, also if the dequeue is
        # repeated.
        (READER, "ListQueues", 1 + 24 + 3),
        (ELSEWHERE, "ListQueues", 1 + 3),
        (READER, "ListMessages", 1 + 20),
        (READER, "Dequeue", 1 + 20),
    ],
)
@pytest.mark.parametrize("is_complete", [True, False])
def test_a_list_is_charged_after_the_call_also_if_the_call_ends_before_its_answer_is_complete(
    server: PrivateServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    token: str,
    method: str,
    cost: int,
    is_complete: bool,
) -> None:
    rate = 'namespaces = ["*"]\nmessages_per_second = 1\nburst = 1_000\n'
    tokens = write_token_file(
        tmp_path,
        entry(READER, '["consume"]', 'queues = ["*"]\n' + rate),
        entry(ELSEWHERE, '["read"]', 'queues = ["other"]\n' + rate),
    )
    where = {"namespace": NAMESPACE} | FIELDS.get(method, {})
    with ServiceThread(server.url, tokens=tokens) as serving, grpc.insecure_channel(serving.target) as channel:
        caller = generic_client(channel, token)
        bucket = tokens.token_store.authenticate((("authorization", f"Bearer {token}"),)).quota._bucket
        assert bucket is not None
        # The first call opens the namespace in the service.
        caller.call(method, **where)
        level, at = bucket._level, bucket._updated_at
        if is_complete:
            caller.call(method, **where)
        else:
            for handlers in (message_handlers, queue_handlers, dequeue_batch):
                monkeypatch.setattr(handlers, "append_all", fail)
            with pytest.raises(grpc.RpcError):
                caller.call(method, **where)
        assert level - bucket._level == pytest.approx(cost - (bucket._updated_at - at))


@pytest.mark.parametrize(
    ("method", "fields", "cost"),
    [("CreateQueue", {}, 1), ("Enqueue", {"message": {}}, 1), ("EnqueueBatch", {"messages": [{}, {}]}, 2)],
    ids=["create", "auto-create", "auto-create-of-a-batch"],
)
def test_a_search_for_the_number_of_a_deleted_queue_is_charged(
    server: PrivateServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    fields: dict[str, Any],
    cost: int,
) -> None:
    rate = 'namespaces = ["*"]\nmessages_per_second = 1\nburst = 1_000\n'
    tokens = write_token_file(tmp_path, entry(CREATOR, '["admin", "produce"]', 'queues = ["*"]\n' + rate))
    with Tickwheel(server.url, namespace=NAMESPACE, existing=True, drive=False) as tickwheel:
        tickwheel.create_queue("deleted")
        tickwheel.delete_queue("deleted")
        monkeypatch.setattr(limits, "QUEUES_MAX", QUEUES + 1)
        with ServiceThread(server.url, tokens=tokens) as serving, grpc.insecure_channel(serving.target) as channel:
            caller = generic_client(channel, CREATOR)
            bucket = tokens.token_store.authenticate((("authorization", f"Bearer {CREATOR}"),)).quota._bucket
            assert bucket is not None
            caller.call("GetQueue", namespace=NAMESPACE, queue="q0")
            level, at = bucket._level, bucket._updated_at
            caller.call(method, namespace=NAMESPACE, queue="new", **fields)
        tickwheel.delete_queue("new", purge=True)
    cost += PAGE_ROWS // limits.ROWS_OF_A_MESSAGE
    assert level - bucket._level == pytest.approx(cost - (bucket._updated_at - at))


def test_a_page_of_messages_with_much_metadata_is_short(server: PrivateServer) -> None:
    pairs = {f"k{n}": "v" * limits.PAIR_VALUE_BYTES for n in range(8)}
    size = 8 * limits.PAIR_VALUE_BYTES
    count = 2 * limits.PAGE_BYTES // size
    with Tickwheel(server.url, namespace=NAMESPACE, existing=True, drive=False) as tickwheel:
        tickwheel.queue("q1").enqueue_many(NewMessage(metadata=pairs) for _ in range(count))
    request = {"namespace": NAMESPACE, "queue": "q1", "page_token": ""}
    found = 0
    with ServiceThread(server.url) as serving, grpc.insecure_channel(serving.target) as channel:
        while True:
            page = generic_client(channel, "").call("ListMessages", **request)
            assert len(page["messages"]) * size < 1.5 * limits.PAGE_BYTES
            found += len(page["messages"])
            if not (token := page["next_page_token"]):
                break
            request["page_token"] = token
    assert found == count
