"""The service rejects an RPC that has no row in the table of RPCs."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from tests.integration.service_thread import ServiceThread
from tests.security.tokens import client, entry, generic_client, write_token_file
from tickwheel import Forbidden, Tickwheel, Unauthenticated
from tickwheel.service.method_table import METHOD_TABLE
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

ADMIN, STRANGER = "tw_all-Of-Nobody-Else", "tw_wrong"
# One RPC of each kind: unary, server streaming, client streaming, bidirectional streaming.
WITHOUT_ROW = ("GetDepth", "DequeueBatch", "EnqueueStream", "DequeueStream")


@pytest.fixture(scope="module")
def service(tickwheel_server: PrivateServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceThread]:
    """A service with a token for all roles, and with RPCs that have no row in its table."""
    tokens = write_token_file(tmp_path_factory.mktemp("tokens"), entry(ADMIN, '["produce", "consume", "admin"]'))
    with Tickwheel(tickwheel_server.url, drive=False):
        pass
    with pytest.MonkeyPatch.context() as patch:
        for name in WITHOUT_ROW:
            patch.delitem(METHOD_TABLE, name)
        with ServiceThread(tickwheel_server.url, tokens=tokens) as serving:
            yield serving


@pytest.mark.parametrize("name", WITHOUT_ROW)
def test_an_rpc_without_a_row_is_refused_to_every_token(service: ServiceThread, name: str) -> None:
    with grpc.insecure_channel(service.target) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            list(generic_client(channel, ADMIN).begin(name))
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert f"the service rejects {name} for every caller" in str(refused.value.details())


def test_a_client_raises_forbidden_and_calls_the_other_rpcs(service: ServiceThread) -> None:
    with client(service, ADMIN) as tickwheel:
        queue = tickwheel.create_queue("orders")
        queue.enqueue(b"x")
        with pytest.raises(Forbidden, match="the service rejects GetDepth for every caller"):
            queue.depth()
        assert queue.counts()["pending"] == 1


def test_a_caller_without_a_token_does_not_learn_which_rpcs_have_no_row(service: ServiceThread) -> None:
    with grpc.insecure_channel(service.target) as channel, pytest.raises(grpc.RpcError) as refused:
        generic_client(channel, STRANGER).call("GetDepth", queue="orders")
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    with pytest.raises(Unauthenticated):
        client(service, STRANGER)


def test_health_and_reflection_need_no_row(service: ServiceThread) -> None:
    with grpc.insecure_channel(service.target) as channel:
        health_stub: Any = HealthStub(channel)
        make_reflection_stub: Any = ServerReflectionStub
        health = health_stub.Check(HealthCheckRequest(), timeout=20)
        assert health.status == HealthCheckResponse.SERVING
        requests = iter([ServerReflectionRequest(list_services="")])
        [listed] = make_reflection_stub(channel).ServerReflectionInfo(
            requests, timeout=20, metadata=(("authorization", f"Bearer {ADMIN}"),)
        )
    assert "tickwheel.v1.MessageService" in {service.name for service in listed.list_services_response.service}
