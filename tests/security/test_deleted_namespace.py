"""Every RPC on a namespace whose deletion was cut off: the answer names the state of the namespace, and no bug."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import grpc
import pytest

from tests.integration.generic_client import GenericClient
from tests.integration.service_thread import ServiceThread
from tests.security.test_permissions import call, request
from tests.security.test_service_requests import BUG_CODES
from tickwheel import Tickwheel
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.removal.delete_namespace import NamespaceDeletion
from tickwheel.rpc.methods import METHODS
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

SHARDS = 2


@pytest.fixture
def open_service(tickwheel_server: PrivateServer) -> Iterator[Callable[[], GenericClient]]:
    with ExitStack() as stack:

        def start() -> GenericClient:
            service = stack.enter_context(ServiceThread(tickwheel_server.url))
            return GenericClient(stack.enter_context(grpc.insecure_channel(service.target)))

        yield start


@pytest.mark.parametrize("name", METHODS)
def test_no_rpc_on_a_namespace_in_deletion_reports_a_bug(
    name: str, open_service: Callable[[], GenericClient], tickwheel_server: PrivateServer, namespace: str
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=SHARDS, drive=False) as tickwheel:
        tickwheel.create_queue("q").enqueue(b"payload", id="kept")
        fields = request(name, namespace, "q")
        if name == "DeleteNamespace":
            # The first step of another deletion.
            fields["page_token"] = ""
        # One service knows the namespace and the queue, and the other reads them now.
        services = {"known": open_service(), "unknown": open_service()}
        services["known"].call("GetQueue", namespace=namespace, queue="q")
        deletion = NamespaceDeletion(NamespaceContext(namespace))
        # The last of these steps removes the keys of a shard.
        for step in range(1 + SHARDS + 1):
            tickwheel._run(deletion.next())
            assert not deletion.ended
            for service, client in services.items():
                code, _ = call(client, name, fields)
                assert code not in BUG_CODES, f"step {step}, service to which the namespace is {service}"
        with pytest.raises(grpc.RpcError) as raised:
            services["unknown"].call("GetQueue", namespace=namespace, queue="q")
        assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        tickwheel.delete_namespace()
