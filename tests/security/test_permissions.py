"""Every RPC with every role, on queues and namespaces of the token and on others, compared with docs/security.md."""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from itertools import product
from typing import Any, Final

import grpc
import pytest
from typer.testing import CliRunner

from tests.integration.generic_client import GenericClient
from tests.integration.service_thread import ServiceThread
from tests.security.permission_table import Grant, read_table
from tests.security.tokens import client, entry_with_grants, generic_client, grant, write_token_file
from tickwheel import NamespaceNotFound, Tickwheel
from tickwheel.cli.app import app
from tickwheel.rpc.methods import METHODS
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

TABLE: Final = read_table()
ROLES: Final = ("read", "produce", "consume", "admin")
HERE, ELSEWHERE = NAMESPACES = ("permissions", "private")
OURS, OTHERS = QUEUES = ("orders-1", "secret")
OUR_QUEUES, OUR_NAMESPACES = ("orders*",), ("permissions*",)
MISSING: Final = "permissions-missing"
Contents = Callable[[str], dict[str, Any]]

# The grants of each token. The name of a token is also its secret.
TOKENS: Final[dict[str, tuple[Grant, ...]]] = {
    **{f"tw_{role}": (Grant([role], OUR_QUEUES, OUR_NAMESPACES),) for role in ROLES},
    **{f"tw_{role}-on-all": (Grant([role], ["*"], OUR_NAMESPACES),) for role in ROLES},
    **{
        f"tw_{'-and-'.join(roles)}": (Grant(roles, OUR_QUEUES, OUR_NAMESPACES),)
        for roles in (("produce", "consume"), ("read", "produce"), ("produce", "consume", "admin"))
    },
    # Patterns that match the text "*".
    "tw_admin-of-similar-patterns": (Grant(["admin"], ["?", "[!s]*", "**"], OUR_NAMESPACES),),
    # Each grant is for another queue, and in half of the tokens for another namespace: no right comes from two grants.
    **{
        f"tw_{first}-here-{second}-{place}": (
            Grant([first], OUR_QUEUES, [HERE]),
            Grant([second], [OTHERS], [place]),
        )
        for first, second, place in product(ROLES, ROLES, NAMESPACES)
        if ROLES.index(second) == (ROLES.index(first) + 1) % len(ROLES)
    },
}

PAYLOAD_BASE64: Final = base64.b64encode(b"payload").decode()
_LEASE: Final = {"id": "kept", "token": "A" * 22 + "==", "attempt": 1}
# The fields of a request for each RPC, besides the namespace and the queue.
FIELDS: Final[dict[str, dict[str, Any]]] = {
    "Enqueue": {"message": {"id": "new"}},
    "EnqueueBatch": {"messages": [{"id": "new"}]},
    "EnqueueStream": {"messages": [{"id": "new"}]},
    "Dequeue": {},
    "DequeueBatch": {"request_id": "s:1", "first_attempt": True},
    "AwaitMessages": {},
    "DequeueStream": {"credit": 1},
    "Complete": {"leases": [_LEASE]},
    "Fail": {"items": [{"lease": _LEASE}]},
    "Release": {"leases": [_LEASE]},
    "Extend": {"leases": [_LEASE], "duration_ms": 1_000},
    "GetLease": {"id": "kept", "token": _LEASE["token"]},
    "Cancel": {"ids": ["new"]},
    "Reschedule": {"id": "kept", "delay_ms": 3_600_000},
    "Redrive": {"id": "kept"},
    "GetMessage": {"id": "kept"},
    "Explain": {"id": "kept"},
    "ListMessages": {},
    "CreateQueue": {},
    "GetQueue": {},
    "BlockQueue": {"enqueue_blocked": False},
    "GetCounts": {},
    "GetDepth": {},
    "GetForecast": {},
    "OpenNamespace": {},
    "ListQueues": {},
    "ListSettings": {},
    "CheckDrivers": {},
    "GetSetting": {"name": "setting"},
    "SetSetting": {"name": "setting", "value": "new"},
    "PurgeQueue": {"states": ["STATE_CANCELLED"]},
    "DeleteQueue": {},
    # With this token, a permitted call deletes nothing.
    "DeleteNamespace": {"page_token": "?"},
}
# A permitted call succeeds, or fails because of the state of its message, lease or queue, or because of its page token.
PERMITTED: Final = {
    grpc.StatusCode.OK,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
}


@pytest.fixture(scope="module")
def service(tickwheel_server: PrivateServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceThread]:
    tokens = write_token_file(
        tmp_path_factory.mktemp("tokens"),
        *(entry_with_grants(token, *(grant(*a_grant) for a_grant in grants)) for token, grants in TOKENS.items()),
    )
    for namespace in NAMESPACES:
        with Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as tickwheel:
            tickwheel.set_setting("setting", "old")
            for queue in QUEUES:
                made = tickwheel.create_queue(queue, forecast=True, retention=timedelta(hours=1))
                made.enqueue(b"payload", id="done")
                made.dequeue()[0].complete("result")
                made.enqueue(id="failed", max_attempts=1)
                made.dequeue()[0].fail("no such region")
                made.enqueue(b"payload", id="kept", delay=timedelta(hours=1), metadata={"region": "eu"})
    with ServiceThread(tickwheel_server.url, tokens=tokens) as serving:
        yield serving
    for namespace in NAMESPACES:
        tickwheel_server.clear(namespace)


@pytest.fixture
def clients(service: ServiceThread) -> Iterator[dict[str, GenericClient]]:
    """A client for each token."""
    with ExitStack() as stack:
        channel = stack.enter_context(grpc.insecure_channel(service.target))
        yield {token: generic_client(channel, token) for token in TOKENS}


def call(client: GenericClient, name: str, *requests: dict[str, Any]) -> tuple[grpc.StatusCode, list[dict[str, Any]]]:
    """Call an RPC with one request, or with several if it is a stream. Return the code and the responses."""
    method, responses = METHODS[name], []
    try:
        if method.client_streaming and method.server_streaming:
            responses += client.stream(name, requests)
        elif method.client_streaming:
            responses.append(client.send_many(name, requests))
        elif name == "DequeueBatch":
            responses += client.begin(name, requests=requests)
        else:
            responses.append(client.call(name, **requests[0]))
    except grpc.RpcError as error:
        return error.code(), responses
    return grpc.StatusCode.OK, responses


def request(name: str, namespace: str, queue: str) -> dict[str, Any]:
    return place(name, namespace, queue) | FIELDS[name]


def place(name: str, namespace: str, queue: str) -> dict[str, Any]:
    """Return the fields of a request that name the namespace and the queue."""
    if name == "AwaitMessages":
        return {"namespace": namespace, "queues": [queue]}
    return {"namespace": namespace} | ({"queue": queue} if TABLE[name].concerns == "a queue" else {})


def run(*arguments: str) -> str:
    """Return the output of a command."""
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_table_has_each_rpc_and_no_other() -> None:
    assert TABLE.keys() == METHODS.keys() | {"OpenNamespace of a new namespace"}
    assert FIELDS.keys() == METHODS.keys()


@pytest.mark.parametrize("name", METHODS)
def test_an_rpc_is_permitted_to_the_tokens_of_the_table_and_to_no_other(
    name: str, clients: dict[str, GenericClient], contents: Contents
) -> None:
    def calls() -> Iterator[tuple[str, bool, dict[str, Any]]]:
        for token, namespace, queue in product(TOKENS, NAMESPACES, QUEUES):
            permitted = TABLE[name].permit(TOKENS[token], namespace, queue)
            yield token, permitted, request(name, namespace, queue)

    before = [contents(namespace) for namespace in NAMESPACES]
    for token, permitted, fields in calls():
        if not permitted:
            code, responses = call(clients[token], name, fields)
            assert (code, responses) == (grpc.StatusCode.PERMISSION_DENIED, []), f"{token}: {fields}"
    assert [contents(namespace) for namespace in NAMESPACES] == before
    for token, permitted, fields in calls():
        if permitted:
            code, _ = call(clients[token], name, fields)
            assert code in PERMITTED, f"{token}: {fields}"


@pytest.mark.parametrize("name", METHODS)
def test_no_rpc_is_permitted_without_a_token(name: str, service: ServiceThread) -> None:
    with grpc.insecure_channel(service.target) as channel:
        for token in ("", "tw_unknown"):
            code, _ = call(generic_client(channel, token), name, request(name, HERE, OURS))
            assert code is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("name", ["EnqueueStream", "DequeueBatch"])
def test_each_queue_that_a_call_names_needs_the_role(name: str, clients: dict[str, GenericClient]) -> None:
    client = clients["tw_produce-and-consume"]
    for place in ((HERE, OTHERS), (ELSEWHERE, OURS), (ELSEWHERE, OTHERS)):
        requests = [
            request(name, HERE, OURS),
            request(name, *place) | ({"request_id": "t:1"} if "Batch" in name else {}),
        ]
        code, _ = call(client, name, *requests)
        assert code is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("queues", [[OURS, OTHERS], [OTHERS, OURS]])
def test_a_wait_for_several_queues_needs_the_role_on_each_of_them(
    queues: list[str], clients: dict[str, GenericClient]
) -> None:
    fields = {"namespace": HERE, "queues": queues}
    code, responses = call(clients["tw_produce-and-consume"], "AwaitMessages", fields)
    assert (code, responses) == (grpc.StatusCode.PERMISSION_DENIED, [])


@pytest.mark.parametrize("token", TOKENS)
def test_a_payload_and_a_result_are_withheld_from_the_tokens_of_the_table(
    token: str, clients: dict[str, GenericClient]
) -> None:
    for namespace, queue in product(NAMESPACES, QUEUES):
        fields, row = {"namespace": namespace, "queue": queue}, TABLE["GetMessage"]
        if row.permit(TOKENS[token], namespace, queue):
            listed = clients[token].call("ListMessages", **fields)["messages"]
            ids = ("kept", "done", "failed")
            single = [clients[token].call("GetMessage", **fields, id=id_)["message"] for id_ in ids]
            withheld = not TABLE["GetMessage"].permit_payload(TOKENS[token], namespace, queue)
            for messages in (single, listed):
                by_id = {message["id"]: message for message in messages}
                assert by_id["kept"]["payload"] == ("" if withheld else PAYLOAD_BASE64)
                assert by_id["done"].get("result") == (None if withheld else "result")
                # The role `read` sees the error of a message.
                assert by_id["failed"]["error"] == "no such region"
                assert {message["payload_withheld"] for message in messages} == {withheld}
                assert by_id["kept"]["metadata"] == {"region": "eu"}


def test_a_client_and_the_command_line_show_that_a_payload_is_withheld(service: ServiceThread) -> None:
    with client(service, "tw_produce", namespace=HERE) as producer:
        [view] = [view for view in producer.queue(OURS).messages() if view.id == "kept"]
        assert view == producer.queue(OURS).get("kept")
        assert (view.payload, view.payload_withheld) == (b"", True)
    with client(service, "tw_consume", namespace=HERE) as consumer:
        view = consumer.queue(OURS).get("kept")
        assert (view.payload, view.payload_withheld) == (b"payload", False)
    arguments = ("--url", service.url.replace("//", "//:tw_produce@"), "--namespace", HERE)
    assert "withheld, like the result" in run("get", OURS, "kept", *arguments)
    assert json.loads(run("get", OURS, "kept", "--json", *arguments))["payload_withheld"]
    lines = run("messages", OURS, "--json", *arguments).splitlines()
    assert all(json.loads(line)["payload_withheld"] for line in lines)


@pytest.mark.parametrize("command", [("counts",), ("queue", "list")], ids=" ".join)
def test_a_command_that_lists_the_queues_shows_those_of_the_token(
    service: ServiceThread, command: tuple[str, ...]
) -> None:
    url = service.url.replace("//", "//:tw_read@")
    listed = json.loads(run(*command, "--json", "--url", url, "--namespace", HERE))
    assert [entry["queue"] for entry in listed] == [OURS]


@pytest.mark.parametrize("token", TOKENS)
def test_a_token_lists_its_queues_only(token: str, clients: dict[str, GenericClient]) -> None:
    for namespace in NAMESPACES:
        if TABLE["ListQueues"].permit(TOKENS[token], namespace, ""):
            [listed] = call(clients[token], "ListQueues", {"namespace": namespace})[1]
            permitted = [queue for queue in QUEUES if TABLE["GetQueue"].permit(TOKENS[token], namespace, queue)]
            assert [queue["name"] for queue in listed["queues"]] == permitted


@pytest.mark.parametrize("token", TOKENS)
def test_a_namespace_is_created_for_the_tokens_of_the_table_and_for_no_other(
    token: str, clients: dict[str, GenericClient], contents: Contents, tickwheel_server: PrivateServer
) -> None:
    opens, creates = TABLE["OpenNamespace"], TABLE["OpenNamespace of a new namespace"]
    for namespace in (f"permissions-{token}", f"private-{token}"):
        code, _ = call(clients[token], "OpenNamespace", {"namespace": namespace, "shards": 2})
        created = contents(namespace)
        tickwheel_server.clear(namespace)
        if creates.permit(TOKENS[token], namespace, ""):
            assert code is grpc.StatusCode.OK
            assert created
        else:
            is_permitted = opens.permit(TOKENS[token], namespace, "")
            assert code is (grpc.StatusCode.NOT_FOUND if is_permitted else grpc.StatusCode.PERMISSION_DENIED)
            assert not created


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"OpenNamespace"}))
def test_no_other_rpc_creates_a_namespace(name: str, clients: dict[str, GenericClient], contents: Contents) -> None:
    for token, caller in clients.items():
        first_page = {"page_token": ""} if name == "DeleteNamespace" else {}
        code, responses = call(caller, name, request(name, MISSING, OURS) | first_page)
        if name == "DequeueBatch" and TABLE[name].permit(TOKENS[token], MISSING, OURS):
            # The client repeats the unanswered request as a single call, which returns the error.
            assert (code, responses) == (grpc.StatusCode.OK, [])
        else:
            is_permitted = TABLE[name].permit(TOKENS[token], MISSING, OURS)
            assert code is (grpc.StatusCode.NOT_FOUND if is_permitted else grpc.StatusCode.PERMISSION_DENIED), token
    assert not contents(MISSING)


def test_the_error_for_a_missing_namespace_names_who_can_create_it(service: ServiceThread) -> None:
    with pytest.raises(NamespaceNotFound, match="token 'produce' cannot create it: this needs a token with the role"):
        client(service, "tw_produce", namespace=MISSING)
    with pytest.raises(NamespaceNotFound, match="enqueue a message, create a queue"):
        client(service, "tw_admin-on-all", namespace=MISSING, existing=True)
