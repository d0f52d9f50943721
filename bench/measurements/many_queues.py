"""Waits for the messages of many queues on many shards over the service: blocks of the event loop."""

from typing import Any

import grpc

from bench.harness.bench_server import BenchServer
from bench.harness.measurement import Measurement, Scale
from bench.measurements.large_requests import WATCHED, longest_block
from services.serving_program import ServingProgram
from tickwheel import NewMessage, Tickwheel
from tickwheel.limits import AWAITED_QUEUES
from tickwheel.rpc.methods import METHODS

_AT_ONCE, _SHARDS, _RUNS = 10, 64, 5


def many_queues(scale: Scale) -> list[Measurement]:
    """Send ten calls of AwaitMessages at once for as many queues as possible. All have messages on most shards."""
    shards, runs = scale.size(_SHARDS, 4), scale.size(_RUNS, 1)
    method, names = METHODS["AwaitMessages"], [f"queue-{n}" for n in range(AWAITED_QUEUES)]
    request = method.request(namespace="tw", queues=names).SerializeToString()
    cpu_ms = []
    with BenchServer() as server:
        with Tickwheel(server.url, shards=shards, drive=False) as tickwheel:
            for name in names:
                tickwheel.create_queue(name).enqueue_many(NewMessage() for _ in range(4 * shards))
        with (
            ServingProgram(server.folder, *WATCHED, server.url) as service,
            grpc.insecure_channel(service.target) as channel,
        ):
            call: Any = channel.unary_unary(method.path)
            # The first call reads the configurations of the queues.
            call(request, timeout=60)
            for _ in range(runs):
                longest_block(service)
                answers = [call.future(request, timeout=60) for _ in range(_AT_ONCE)]
                for answer in answers:
                    answer.result()
                cpu_ms.append(longest_block(service)[0])
    return [
        Measurement(
            "many_queues",
            f"longest block of the event loop by {_AT_ONCE} waits at once for {AWAITED_QUEUES} queues on {shards}"
            " shards (CPU time)",
            "ms",
            cpu_ms,
            50,
        )
    ]
