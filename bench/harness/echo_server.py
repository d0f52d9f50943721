"""A gRPC server that only returns each request, to measure the cost of a call without any work."""

import asyncio
from typing import Any

import grpc
import grpc.aio

PATH = "/bench.Echo/Echo"


async def _echo(request: bytes, context: Any) -> bytes:
    return request


async def _serve() -> None:
    server = grpc.aio.server()
    handler = grpc.method_handlers_generic_handler("bench.Echo", {"Echo": grpc.unary_unary_rpc_method_handler(_echo)})
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"serving grpc://127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve())
