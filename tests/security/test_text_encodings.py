"""Texts that are not UTF-8, and page tokens that no server returned, are clear errors."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import grpc
import pytest

from tests.integration.service_thread import ServiceThread
from tests.security.calls import ARGUMENTS, CallTargets
from tests.security.tokens import generic_client
from tickwheel import DataLoss, InvalidArgument, Tickwheel
from tickwheel.model.message import LeasedMessage
from tickwheel.rpc.methods import METHODS
from tickwheel.storage.keys import queues_key, settings_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

NAMESPACE = "text-encodings"
SURROGATES = ("\ud800", "a\udcff")
PAGE_TOKENS = (
    *(
        "x",
        ":",
        "0",
        "0:",
        ":0",
        "0:-1",
        "-1:0",
        "0:x",
        "1:0",
        "99999:0",
        "0:1 ",
        "0:1\n",
        "0:1:2",
        "٣:٣",
        "0:" + "1" * 200,
        "0:1+",
        "0:01234567-",
        "0:01234567-x",
        "0:01234567--1",
        "0:01234567-1+",
        "0:0123456-1",
        "0:0123456g-1",
        "0:0123456A-1",
        f"0:01234567-{2**64}",
    ),
    *(f"0:{2**64}", f"0:{2**64 + 1}", f"0:{10**20 - 1}", f"0:{10**21}", "\0", "{0}:0"),
)
# Calls of `Tickwheel` with a name or a value.
CALLS: dict[str, Callable[[Tickwheel, Any], object]] = {
    "queue": lambda tickwheel, text: tickwheel.queue(text),
    "create_queue": lambda tickwheel, text: tickwheel.create_queue(text),
    "create_queue sink": lambda tickwheel, text: tickwheel.create_queue("q", sink=f"kafka://{text}"),
    "setting": lambda tickwheel, text: tickwheel.setting(text),
    "set_setting name": lambda tickwheel, text: tickwheel.set_setting(text, "v"),
    "set_setting value": lambda tickwheel, text: tickwheel.set_setting("name", text),
    "set_setting name removed": lambda tickwheel, text: tickwheel.set_setting(text, None),
}
# What reads stored names, and the key of the hash that contains them.
READS: dict[str, tuple[Callable[[str], str], Callable[[Tickwheel], object]]] = {
    "settings": (settings_key, lambda tickwheel: tickwheel.settings()),
    "setting": (settings_key, lambda tickwheel: tickwheel.setting("name")),
}


@pytest.fixture(scope="module", params=["redis", "grpc"])
def tickwheel_of_module(
    request: pytest.FixtureRequest, tickwheel_server: PrivateServer, real_time_service: ServiceThread
) -> Iterator[Tickwheel]:
    url = tickwheel_server.url if request.param == "redis" else real_time_service.url
    with Tickwheel(url, namespace=NAMESPACE, drive=False) as tickwheel:
        yield tickwheel
    tickwheel_server.clear(NAMESPACE)


@pytest.fixture(scope="module")
def targets(tickwheel_of_module: Tickwheel) -> CallTargets:
    return CallTargets(tickwheel_of_module)


@pytest.mark.parametrize("argument", [name for name, argument in ARGUMENTS.items() if str in argument.types])
def test_a_text_that_is_not_unicode_is_an_invalid_argument_of_every_call(targets: CallTargets, argument: str) -> None:
    for text in SURROGATES:
        targets.prepare()
        with pytest.raises(InvalidArgument):
            ARGUMENTS[argument].call(targets, text)


@pytest.mark.parametrize("call", CALLS)
def test_a_name_that_is_not_unicode_is_an_invalid_argument(tickwheel_of_module: Tickwheel, call: str) -> None:
    for text in SURROGATES:
        with pytest.raises(InvalidArgument):
            CALLS[call](tickwheel_of_module, text)


@pytest.mark.parametrize("pairs", [{"\ud800": "v"}, {"k": "\udcff"}])
def test_a_pair_that_is_not_unicode_is_an_invalid_argument(targets: CallTargets, pairs: dict[str, str]) -> None:
    for call in (
        lambda: targets.plain.enqueue(metadata=pairs),
        lambda: targets.plain.dequeue(where=pairs),
        lambda: targets.plain.depth(where=pairs),
    ):
        with pytest.raises(InvalidArgument):
            call()


@pytest.mark.parametrize("page_token", PAGE_TOKENS)
def test_a_page_token_that_no_page_returned_is_an_invalid_argument(
    targets: CallTargets, real_time_service: ServiceThread, page_token: str
) -> None:
    with grpc.insecure_channel(real_time_service.target) as channel, pytest.raises(grpc.RpcError) as refused:
        generic_client(channel, "").call("ListMessages", namespace=NAMESPACE, queue="plain", page_token=page_token)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "page_token must be the token of the previous page" in str(refused.value.details())


# Fields of requests, each with a method.
STRINGS = {"namespace": "GetQueue", "queue": "GetQueue", "name": "GetSetting", "page_token": "ListMessages"}


@pytest.mark.parametrize("field", STRINGS)
def test_a_text_that_is_not_utf_8_is_an_invalid_argument_of_the_service(
    real_time_service: ServiceThread, field: str
) -> None:
    method = STRINGS[field]
    number = METHODS[method].request.DESCRIPTOR.fields_by_name[field].number
    with grpc.insecure_channel(real_time_service.target) as channel, pytest.raises(grpc.RpcError) as refused:
        generic_client(channel, "").raw(method, bytes([number << 3 | 2, 2]) + b"\xff\xfe")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("backend", ["redis", "grpc"])
def test_a_stored_name_that_is_not_utf_8_is_named_by_an_error(
    read: str,
    backend: str,
    tickwheel_server: PrivateServer,
    real_time_service: ServiceThread,
    namespace: str,
    server: Any,
) -> None:
    key, call = READS[read]
    url = tickwheel_server.url if backend == "redis" else real_time_service.url
    with Tickwheel(url, namespace=namespace, drive=False) as tickwheel:
        tickwheel.create_queue("q")
        server.hset(key(namespace), b"name" if read == "setting" else b"\xff\xfe", b"\xff")
        with pytest.raises(DataLoss, match="is damaged, because it is not UTF-8"):
            call(tickwheel)


@pytest.mark.parametrize("backend", ["redis", "grpc"])
def test_a_stored_name_of_a_queue_that_is_not_utf_8_hides_no_other_queue(
    backend: str, tickwheel_server: PrivateServer, real_time_service: ServiceThread, namespace: str, server: Any
) -> None:
    url = tickwheel_server.url if backend == "redis" else real_time_service.url
    with Tickwheel(url, namespace=namespace, drive=False) as tickwheel:
        tickwheel.create_queue("q")
        server.hset(queues_key(namespace), b"\xff\xfe", b"\xff")
        assert [queue.name for queue in tickwheel.queues()] == ["q"]


def test_a_key_of_another_type_is_a_loss_of_data_and_no_bug_of_the_service(
    real_time_service: ServiceThread, namespace: str, server: Any
) -> None:
    with Tickwheel(real_time_service.url, namespace=namespace, drive=False) as tickwheel:
        queue = tickwheel.create_queue("q")
        inbox = f"{namespace}:{{0}}:inbox"
        server.set(inbox, "x")
        with pytest.raises(DataLoss, match="inbox has the type string, not stream"):
            queue.enqueue(delay=timedelta(hours=1))
        server.delete(inbox)
        assert queue.enqueue(id="m", delay=timedelta(hours=1)).id == "m"


def test_damaged_data_is_a_loss_of_data_and_no_bug_of_the_service(
    real_time_service: ServiceThread, namespace: str, server: Any
) -> None:
    with Tickwheel(real_time_service.url, namespace=namespace, drive=False) as tickwheel:
        tickwheel.queue("q").enqueue(id="first", metadata={"key": "value"})
    key = f"{namespace}:{{0}}:messages"
    [name] = server.hkeys(key)
    server.hset(key, name, server.hget(key, name).replace(b"value", b"\xff\xfe\xff\xfe\xff"))
    with grpc.insecure_channel(real_time_service.target) as channel, pytest.raises(grpc.RpcError) as failed:
        generic_client(channel, "").call("GetMessage", namespace=namespace, queue="q", id="first")
    assert failed.value.code() is grpc.StatusCode.DATA_LOSS
    assert "is damaged" in str(failed.value.details())


def test_a_stored_message_whose_texts_are_not_utf_8_is_named_by_an_error(
    tickwheel_server: PrivateServer, namespace: str, server: Any
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as tickwheel:
        queue = tickwheel.queue("q")
        queue.enqueue(id="first", metadata={"key": "value"})
        queue.enqueue(id="later", delay=timedelta(hours=1))
        key = f"{namespace}:{{0}}:messages"
        [name] = [field for field in server.hkeys(key) if field.endswith(b"first")]
        stored = server.hget(key, name)
        server.hset(key, name, stored.replace(b"value", b"\xff\xfe\xff\xfe\xff"))
        with pytest.raises(DataLoss, match="is damaged"):
            queue.get("first")
        with pytest.raises(DataLoss, match="is damaged"):
            list(queue.messages())
        [message] = queue.dequeue()
        with pytest.raises(DataLoss, match="the metadata of message 'first' of queue 'q' is damaged"):
            _ = message.metadata
        leased = server.hget(key, name)
    with pytest.raises(DataLoss, match="the name of a message of queue 'q' is damaged"):
        LeasedMessage("q", name[:2] + b"\xff", leased, b"", False)
