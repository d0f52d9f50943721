"""The right to sinks: a token sets only the sinks whose topics its grants with the role admin permit."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.integration.service_thread import ServiceThread
from tests.security.tokens import client, entry, entry_with_grants, grant, write_token_file
from tickwheel import Forbidden, Tickwheel
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

WITHOUT, WITH_ALL, WITH_SOME = (f"tw_{name}-Of-Nobody-Else" for name in "abc")
NAMESPACE = "sink-rights"


@pytest.fixture
def direct(tickwheel_server: PrivateServer) -> Iterator[Tickwheel]:
    """A client that connects to Redis, so it has all rights."""
    with Tickwheel(tickwheel_server.url, namespace=NAMESPACE, drive=False) as opened:
        yield opened
    tickwheel_server.clear(NAMESPACE)


@pytest.fixture
def service(tickwheel_server: PrivateServer, direct: Tickwheel, tmp_path: Path) -> Iterator[ServiceThread]:
    here = [NAMESPACE]
    tokens = write_token_file(
        tmp_path,
        entry(WITHOUT, '["admin"]', f'namespaces = ["{NAMESPACE}"]\nsinks = []'),
        entry(WITH_ALL, '["admin"]', f'namespaces = ["{NAMESPACE}"]\nsinks = ["*"]'),
        entry_with_grants(
            WITH_SOME,
            grant(["admin"], ["mail*"], here) + 'sinks = ["mail.?", "reports"]\n',
            grant(["admin"], ["sms*"], here) + 'sinks = ["sms"]\n',
            grant(["admin"], ["*"], here),
            grant(["admin"], ["*"], ["elsewhere"]) + 'sinks = ["*"]\n',
        ),
    )
    with ServiceThread(tickwheel_server.url, tokens=tokens) as serving:
        yield serving


@pytest.mark.parametrize(
    ("token", "queue", "topic"),
    [
        (WITHOUT, "mail", "x"),
        (WITH_SOME, "mail", "mail.ab"),
        (WITH_SOME, "mail", "sms"),
        (WITH_SOME, "logs", "reports"),
    ],
)
def test_a_sink_whose_topic_no_grant_of_the_token_permits_is_refused_before_anything_is_written(
    service: ServiceThread, direct: Tickwheel, token: str, queue: str, topic: str
) -> None:
    with client(service, token, namespace=NAMESPACE) as caller:
        refusal = f"may not set the topic '{topic}' as the sink of queue '{queue}': .* 'sinks', in the tokens file"
        with pytest.raises(Forbidden, match=refusal):
            caller.create_queue(queue, sink=f"kafka://{topic}")
        assert direct.queues() == []
        before = direct.create_queue(queue, sink="kafka://other").config()
        with pytest.raises(Forbidden, match=refusal):
            caller.create_queue(queue, update=True, sink=f"kafka://{topic}", lease=timedelta(minutes=7))
        assert direct.queue(queue).config() == before


@pytest.mark.parametrize(
    ("token", "queue", "topic"),
    [
        (WITH_ALL, "logs", "x"),
        (WITH_SOME, "mail-1", "mail.a"),
        (WITH_SOME, "mail-1", "reports"),
        (WITH_SOME, "sms", "sms"),
    ],
)
def test_a_sink_whose_topic_a_grant_for_the_queue_permits_is_set(
    service: ServiceThread, direct: Tickwheel, token: str, queue: str, topic: str
) -> None:
    with client(service, token, namespace=NAMESPACE) as caller:
        assert caller.create_queue(queue, sink=f"kafka://{topic}").config().sink == f"kafka://{topic}"
        direct.create_queue(queue, update=True, sink="")
        assert caller.create_queue(queue, update=True, sink=f"kafka://{topic}").config().sink == f"kafka://{topic}"


def test_an_admin_without_the_right_keeps_and_removes_a_sink(service: ServiceThread, direct: Tickwheel) -> None:
    direct.create_queue("mail", sink="kafka://x")
    with client(service, WITHOUT, namespace=NAMESPACE) as caller:
        caller.create_queue("mail", sink="kafka://x")
        config = caller.create_queue("mail", update=True, lease=timedelta(seconds=7)).config()
        assert (config.sink, config.lease_ms) == ("kafka://x", 7_000)
        config = caller.create_queue("mail", update=True, sink="kafka://x", lease=timedelta(seconds=8)).config()
        assert (config.sink, config.lease_ms) == ("kafka://x", 8_000)
        assert caller.create_queue("mail", update=True, sink="").config().sink is None
        with pytest.raises(Forbidden, match="'sinks'"):
            caller.create_queue("mail", update=True, sink="kafka://x")


def test_without_tokens_every_caller_sets_sinks(tickwheel_server: PrivateServer, direct: Tickwheel) -> None:
    with ServiceThread(tickwheel_server.url) as serving, client(serving, "", namespace=NAMESPACE) as caller:
        assert caller.create_queue("mail", sink="kafka://x").config().sink == "kafka://x"
