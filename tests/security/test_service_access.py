"""Tokens of the service: a client needs a valid token, and a token grants only the rights of its entry."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.integration.service_thread import ServiceThread
from tests.security.tokens import client, entry, entry_with_grants, generic_client, grant, write_token_file
from tickwheel import Forbidden, InvalidArgument, NewMessage, Tickwheel, Unauthenticated, aio
from tickwheel.service.token_file import TokenFile
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

# Fixed values, because all processes of a run must collect the same tests.
PRODUCER, CONSUMER, ADMIN, EXPIRED, ELSEWHERE, SOME_QUEUES = (f"tw_{name}-Of-Nobody-Else" for name in "abcdef")


@pytest.fixture(scope="module")
def service(tickwheel_server: PrivateServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceThread]:
    tokens = write_token_file(
        tmp_path_factory.mktemp("tokens"),
        entry(PRODUCER, '["produce"]', 'queues = ["orders*"]'),
        entry(CONSUMER, '["consume"]', 'queues = ["orders*"]'),
        entry(ADMIN, '["produce", "consume", "admin"]'),
        entry(SOME_QUEUES, '["admin"]', 'queues = ["orders*"]'),
        entry(EXPIRED, '["admin"]', "expires = 2020-01-01T00:00:00Z"),
        entry(ELSEWHERE, '["admin"]', 'namespaces = ["other"]'),
    )
    with Tickwheel(tickwheel_server.url, drive=False):
        pass
    with ServiceThread(tickwheel_server.url, tokens=tokens) as serving:
        yield serving


@pytest.mark.parametrize(
    "token",
    ["", "tw_wrong", PRODUCER[:-1], PRODUCER.swapcase(), EXPIRED],
    ids=["none", "wrong", "truncated", "other case", "expired"],
)
def test_a_caller_without_a_valid_token_is_unauthenticated(service: ServiceThread, token: str) -> None:
    with pytest.raises(Unauthenticated):
        client(service, token)


def test_a_token_permits_the_calls_of_its_roles_only(service: ServiceThread) -> None:
    with client(service, ADMIN) as admin, client(service, PRODUCER) as producer, client(service, CONSUMER) as consumer:
        admin.create_queue("orders-1", lease=timedelta(seconds=30))
        producer.queue("orders-1").enqueue(b"x", id="a")
        with pytest.raises(Forbidden, match="needs 'consume'"):
            producer.queue("orders-1").dequeue()
        with pytest.raises(Forbidden, match="needs 'produce'"):
            consumer.queue("orders-1").enqueue(b"y")
        [message] = consumer.queue("orders-1").dequeue()
        with pytest.raises(Forbidden, match="needs 'admin'"):
            consumer.create_queue("orders-2")
        message.complete()


def test_a_batch_of_dequeues_is_refused_if_one_of_them_is_after_the_others_were_answered(
    service: ServiceThread,
) -> None:
    with client(service, ADMIN) as admin, grpc.insecure_channel(service.target) as channel:
        admin.queue("orders-5").enqueue(b"x", id="a")
        requests = [
            {"queue": queue, "request_id": f"{queue}:1", "first_attempt": True} for queue in ("secret", "orders-5")
        ]
        responses: list[Any] = []
        with pytest.raises(grpc.RpcError) as refused:
            responses.extend(generic_client(channel, CONSUMER).begin("DequeueBatch", requests=requests))
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert "is not for queue 'secret'" in str(refused.value.details())
        [[answer]] = [response["answers"] for response in responses]
        assert answer["place"] == 1
        assert [delivery["lease"]["id"] for delivery in answer["response"]["deliveries"]] == ["a"]


def test_each_of_several_concurrent_polls_is_authorized_separately(service: ServiceThread) -> None:
    with client(service, ADMIN) as admin:
        admin.queue("orders-6").enqueue(b"x", id="a")

    async def poll() -> list[Any]:
        async with aio.Tickwheel(service.url.replace("//", f"//:{CONSUMER}@")) as consumer:
            names = "orders-6", "secret", "orders-7"
            return await asyncio.gather(*(consumer.queue(name).dequeue() for name in names), return_exceptions=True)

    messages, refused, nothing = asyncio.run(poll())
    assert [message.id for message in messages] == ["a"]
    assert isinstance(refused, Forbidden)
    assert nothing == []


def test_a_queue_outside_the_patterns_of_a_token_is_refused_before_it_is_created(service: ServiceThread) -> None:
    with client(service, PRODUCER) as producer, client(service, ADMIN) as admin:
        with pytest.raises(Forbidden, match="is not for queue 'unmade'"):
            producer.queue("unmade").enqueue(b"x")
        with pytest.raises(Forbidden, match="is not for queue 'unmade'"):
            producer.queue("unmade").counts()
        assert "unmade" not in [queue.name for queue in admin.queues()]


def test_every_token_reads_settings_and_only_admins_of_all_queues_write_them(service: ServiceThread) -> None:
    with client(service, ADMIN) as admin, client(service, PRODUCER) as producer, client(service, SOME_QUEUES) as some:
        admin.set_setting("a", "b")
        assert (producer.setting("a"), producer.settings()["a"]) == ("b", "b")
        with pytest.raises(Forbidden, match="needs 'admin'"):
            producer.set_setting("a", "c")
        with pytest.raises(Forbidden, match=r"is not for all queues \(the pattern '\*'\)"):
            some.set_setting("a", None)
        assert admin.setting("a") == "b"


def test_a_namespace_that_a_token_does_not_name_is_refused(service: ServiceThread) -> None:
    with pytest.raises(Forbidden, match="is not for namespace 'tw'"):
        client(service, ELSEWHERE)


def test_no_text_contains_a_token(service: ServiceThread) -> None:
    with client(service, PRODUCER) as producer:
        assert PRODUCER not in repr(producer)
    with pytest.raises(Unauthenticated) as refused:
        client(service, "tw_a-secret")
    assert "tw_a-secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must contain at least one [[token]] table"),
        ("[[token]]\n", "has no sha256"),
        ("token = 3\n", "must contain at least one [[token]] table"),
        ("[[token", "is not valid TOML"),
        (entry(PRODUCER, '["produce"]') + "[other]\n", "and nothing else"),
        (entry(PRODUCER, '["write"]'), "must be one of produce, consume, admin, read, not 'write'"),
        (entry(PRODUCER, "[]"), "roles of token 1"),
        (entry(PRODUCER, '["produce"]', "queues = 3"), "queues of token 1"),
        (entry(PRODUCER, '["produce"]', 'expires = "soon"'), "expires of token 1"),
        (entry(PRODUCER, '["produce"]', "auto_created_queues = -1"), "auto_created_queues of token 1"),
        (entry(PRODUCER, '["produce"]', "secret = 1"), "has no setting 'secret'"),
        (entry(PRODUCER, '["produce"]') * 2, "contains the same sha256 twice"),
        (entry_with_grants(PRODUCER, grant(["produce"])) * 2, "contains the same sha256 twice"),
        (entry(PRODUCER, '["produce"]', grant(["consume"])), "token 1 of {path} has both roles and [[token.grant]]"),
        (entry_with_grants(PRODUCER, 'queues = ["a"]\n', grant(["read"])), "has both queues and [[token.grant]]"),
        (entry_with_grants(PRODUCER, "grant = []\n"), "the grants of token 1 of {path} must be one or more tables"),
        (entry_with_grants(PRODUCER, "grant = [1]\n"), "the grants of token 1 of {path} must be one or more tables"),
        (entry_with_grants(PRODUCER, "[token.grant]\n"), "the grants of token 1 of {path} must be one or more tables"),
        (entry_with_grants(PRODUCER, "[[token.grant]]\n"), "roles of grant 1 of token 1 of {path} must be a list"),
        (
            entry_with_grants(PRODUCER, grant(["read"]), grant(["read"]) + "burst = 3\n"),
            "grant 2 of token 1 of {path} has no setting 'burst'; the settings are namespaces, queues, roles",
        ),
        (entry_with_grants(PRODUCER, grant(["write"])), "a role of grant 1 of token 1 of {path} must be one of"),
        (entry_with_grants(PRODUCER, grant(["read"], ["a b"])), "queues of grant 1 of token 1 of {path} has 'a b'"),
        (entry_with_grants(PRODUCER, grant(["read"], ["a"], ["ä"])), "namespaces of grant 1 of token 1 of {path} has"),
    ],
)
def test_an_error_in_the_token_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tokens.toml"
    path.touch(0o600)
    path.write_text(text)
    with pytest.raises(InvalidArgument) as refused:
        TokenFile(path)
    assert message.replace("{path}", str(path)) in str(refused.value)


def test_only_admins_purge_and_delete(service: ServiceThread) -> None:
    with client(service, ADMIN) as admin, client(service, PRODUCER) as producer, client(service, SOME_QUEUES) as some:
        for name in ("orders-8", "mail-8"):
            admin.queue(name).enqueue(b"x", id="a")
        calls: list[Callable[[], object]] = [
            producer.queue("orders-8").purge,
            lambda: producer.delete_queue("orders-8", purge=True),
            producer.delete_namespace,
        ]
        for call in calls:
            with pytest.raises(Forbidden, match="needs 'admin'"):
                call()
        for call in (some.queue("mail-8").purge, lambda: some.delete_queue("mail-8")):
            with pytest.raises(Forbidden, match="is not for queue"):
                call()
        with pytest.raises(Forbidden, match="is not for all queues"):
            some.delete_namespace()
        assert some.queue("orders-8").purge() == 1
        some.delete_queue("orders-8")
        assert admin.delete_queue("mail-8", purge=True) == 1


def test_auto_create_makes_a_bounded_number_of_queues_for_a_token(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    def names(extra: str) -> TokenFile:
        return write_token_file(
            tmp_path,
            entry(PRODUCER, '["produce"]', f'namespaces = ["{namespace}"]\n{extra}'),
            entry(ADMIN, '["produce", "admin"]', f'namespaces = ["{namespace}"]\nauto_created_queues = 1'),
        )

    def open_client(service: ServiceThread, token: str) -> Tickwheel:
        return Tickwheel(service.url.replace("//", f"//:{token}@"), namespace=namespace)

    with Tickwheel(tickwheel_server.url, namespace=namespace) as direct:
        # The number is stored, so it holds over processes.
        for allowed in (2, 3):
            with (
                ServiceThread(tickwheel_server.url, tokens=names(f"auto_created_queues = {allowed}")) as service,
                open_client(service, PRODUCER) as producer,
                open_client(service, ADMIN) as admin,
            ):
                for n in range(allowed):
                    producer.queue(f"q{n}").enqueue(b"x")
                for add in (
                    producer.queue("more").enqueue,
                    lambda: producer.queue("more").enqueue_many([NewMessage()] * 2),
                ):
                    with pytest.raises(Forbidden, match=f"limit of the token is {allowed}: delete queues"):
                        add()
                # The tokens have separate limits, and create_queue is not limited.
                admin.queue("of-admin").enqueue()
                admin.create_queue(f"created-{allowed}")
                producer.queue(f"created-{allowed}").enqueue()
                admin.delete_queue("q0", purge=True)
                producer.queue("q0").enqueue()
        direct.queue("of-a-direct-client").enqueue()
