"""A list costs what it has read: the rate of a token bounds the lists of many queues and messages, too."""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.integration.service_thread import ServiceThread
from tests.security.tokens import entry, generic_client, write_token_file
from tickwheel import NewMessage, Tickwheel
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

NAMESPACE = "service-lists"
READER, ELSEWHERE = "tw_reader-Of-Lists", "tw_elsewhere-Of-Lists"
QUEUES = 96


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
        # 96 queues of the answer and 96 rows; 96 rows; 320 messages.
        (READER, "ListQueues", 1 + 24 + 3),
        (ELSEWHERE, "ListQueues", 1 + 3),
        (READER, "ListMessages", 1 + 20),
    ],
)
def test_a_list_is_charged_after_the_call(
    server: PrivateServer, tmp_path: Path, token: str, method: str, cost: int
) -> None:
    rate = 'namespaces = ["*"]\nmessages_per_second = 1\nburst = 1_000\n'
    tokens = write_token_file(
        tmp_path,
        entry(READER, '["read"]', 'queues = ["*"]\n' + rate),
        entry(ELSEWHERE, '["read"]', 'queues = ["other"]\n' + rate),
    )
    where = {"namespace": NAMESPACE} | ({"queue": "q0"} if method == "ListMessages" else {})
    with ServiceThread(server.url, tokens=tokens) as serving, grpc.insecure_channel(serving.target) as channel:
        caller = generic_client(channel, token)
        bucket = tokens.token_store.authenticate((("authorization", f"Bearer {token}"),)).quota._bucket
        assert bucket is not None
        # The first call opens the namespace in the service.
        caller.call(method, **where)
        level, at = bucket._level, bucket._updated_at
        caller.call(method, **where)
        assert level - bucket._level == pytest.approx(cost - (bucket._updated_at - at))
