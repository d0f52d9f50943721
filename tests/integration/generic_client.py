"""A client of the service that uses only its .proto files, like a client in another language."""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass

ROOT = Path(__file__).parents[2]


@cache
def _pool() -> DescriptorPool:
    protoc = str(Path(sys.executable).with_name("protoc"))
    command = [protoc, "-Iproto", "--include_imports", "--descriptor_set_out=/dev/stdout"]
    files = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "proto").rglob("*.proto"))
    compiled = subprocess.run([*command, *files], cwd=ROOT, check=True, capture_output=True, timeout=60).stdout
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(compiled).file:
        pool.Add(file)
    return pool


class GenericClient:
    """Calls methods by name, with dicts, over a channel."""

    def __init__(self, channel: grpc.Channel, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        """``metadata`` is sent with each call."""
        self._channel = channel
        self._metadata = metadata

    def call(self, name: str, /, **fields: Any) -> dict[str, Any]:
        """Return the reply to one request, within ``timeout`` seconds (20)."""
        timeout = fields.pop("timeout", 20)
        method = self._method(name)
        send = self._channel.unary_unary(_path(method), _pack, GetMessageClass(method.output_type).FromString)
        return _dict(send(_message(method, fields), timeout=timeout, metadata=self._metadata))

    def call_for_many(self, name: str, /, **fields: Any) -> list[dict[str, Any]]:
        """Return all replies to one request."""
        return list(self.begin(name, **fields))

    def begin(self, name: str, /, **fields: Any) -> "Stream":
        """Return the stream of replies to one request."""
        method = self._method(name)
        send = self._channel.unary_stream(_path(method), _pack, GetMessageClass(method.output_type).FromString)
        return Stream(send(_message(method, fields), timeout=60, metadata=self._metadata))

    def send_many(self, name: str, requests: Iterable[dict[str, Any]], timeout: float = 20) -> dict[str, Any]:
        """Return the reply to many requests."""
        method = self._method(name)
        send = self._channel.stream_unary(_path(method), _pack, GetMessageClass(method.output_type).FromString)
        return _dict(
            send((_message(method, request) for request in requests), timeout=timeout, metadata=self._metadata)
        )

    def stream(self, name: str, requests: Iterable[dict[str, Any]], timeout: float = 20) -> Any:
        """Return replies as they arrive; `Stream.cancel` ends the stream."""
        method = self._method(name)
        send = self._channel.stream_stream(_path(method), _pack, GetMessageClass(method.output_type).FromString)
        return Stream(
            send((_message(method, request) for request in requests), timeout=timeout, metadata=self._metadata)
        )

    def raw(self, name: str, request: bytes) -> bytes:
        """Return the bytes of a reply to the bytes of a request."""
        send = self._channel.unary_unary(_path(self._method(name)), lambda data: data, lambda data: data)
        answer: bytes = send(request, timeout=20, metadata=self._metadata)
        return answer

    def _method(self, name: str) -> Any:
        for service in ("MessageService", "QueueService"):
            method = _pool().FindServiceByName(f"tickwheel.v1.{service}").methods_by_name.get(name)
            if method is not None:
                return method
        raise LookupError(name)


class Stream:
    """The replies of a stream."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(_dict, self._call)

    def cancel(self) -> None:
        self._call.cancel()


def _path(method: Any) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def _message(method: Any, fields: dict[str, Any]) -> Any:
    return ParseDict(fields, GetMessageClass(method.input_type)())


def _pack(message: Any) -> bytes:
    packed: bytes = message.SerializeToString()
    return packed


def _dict(message: Any) -> dict[str, Any]:
    return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
