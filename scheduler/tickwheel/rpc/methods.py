"""The RPCs of the service by name, read from the compiled descriptors of proto/."""

from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from tickwheel.v1 import message_service_pb2, queue_service_pb2

SERVICES: Final[tuple[ServiceDescriptor, ...]] = tuple(
    file.DESCRIPTOR.services_by_name[name]
    for file, name in ((message_service_pb2, "MessageService"), (queue_service_pb2, "QueueService"))
)


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC: its path, the classes of its messages, and which sides stream."""

    name: str
    path: str
    request: Any
    response: Any
    client_streaming: bool
    server_streaming: bool

    @property
    def may_change_data(self) -> bool:
        return not self.name.startswith(("Await", "Check", "Get", "List", "Explain"))


def methods_of(service: Any) -> list[Method]:
    """Return the RPCs of a service."""
    return [
        Method(
            method.name,
            f"/{service.full_name}/{method.name}",
            GetMessageClass(method.input_type),
            GetMessageClass(method.output_type),
            method.client_streaming,
            method.server_streaming,
        )
        for method in service.methods
    ]


METHODS: Final = {method.name: method for service in SERVICES for method in methods_of(service)}
