"""Requests of the largest size to the service, ten at once, of every RPC: memory, and blocks of the event loop."""

import re
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc

from bench.harness.bench_server import BenchServer
from bench.harness.large_requests import hostile_requests, legal_requests, send
from bench.harness.measurement import Measurement, Scale
from services.serving_program import ServingProgram
from tickwheel import Tickwheel
from tickwheel.rpc.methods import METHODS, Method

AT_ONCE = 10
WATCHED = ("-m", "bench.harness.watched_service")


def large_requests(scale: Scale) -> list[Measurement]:
    """Send ten requests at once of each shape, and read the peak of the service's memory and its longest block."""
    shapes: list[tuple[str, Method, Sequence[bytes]]] = [
        (f"{method.name}: {shape}", method, [request] * AT_ONCE)
        for method in METHODS.values()
        for shape, request in hostile_requests(method, "tw", "large")
    ]
    for rows in zip(*(legal_requests("tw", "large", number) for number in range(AT_ONCE)), strict=True):
        shape, name, _ = rows[0]
        shapes.append((f"{name}: {shape}", METHODS[name], [request for _, _, request in rows]))
    memory: dict[str, float] = {}
    cpu_ms: dict[str, float] = {}
    elapsed_ms: dict[str, float] = {}
    with BenchServer() as server:
        with Tickwheel(server.url, drive=False) as tickwheel:
            tickwheel.create_queue("large")
        for label, method, requests in shapes if not scale.quick else shapes[:3]:
            with ServingProgram(server.folder, *WATCHED, server.url) as service:
                memory[label], (cpu_ms[label], elapsed_ms[label]) = _measure(service, method, requests)
    return [
        Measurement(
            "large_requests_memory",
            f"memory of the service for {AT_ONCE} requests of 4 MiB at once, the largest of all RPCs and shapes",
            "MB",
            [max(memory.values())],
            200,
            details={"shape": max(memory, key=memory.__getitem__), "shapes": len(memory)},
        ),
        Measurement(
            "large_requests_block",
            f"longest block of the event loop by {AT_ONCE} requests of 4 MiB at once (CPU time)",
            "ms",
            [max(cpu_ms.values())],
            50,
            details={
                "shape": max(cpu_ms, key=cpu_ms.__getitem__),
                "shapes": len(cpu_ms),
                "longest_elapsed_ms": _longest(elapsed_ms, 5),
            },
        ),
    ]


def _longest(times_ms: dict[str, float], count: int) -> dict[str, float]:
    """Return the ``count`` shapes with the longest times."""
    return dict(sorted(times_ms.items(), key=lambda item: -item[1])[:count])


def _measure(service: ServingProgram, method: Method, requests: Sequence[bytes]) -> tuple[float, tuple[float, float]]:
    """Return the memory above the memory at rest, in MB, and the longest block of the event loop (`longest_block`)."""
    separate = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
    with ExitStack() as opened, ThreadPoolExecutor(AT_ONCE) as pool:
        channels = [
            opened.enter_context(grpc.insecure_channel(service.target, options=separate)) for _ in range(AT_ONCE)
        ]

        def attempt(channel: grpc.Channel, request: bytes) -> None:
            # The service rejects hostile requests.
            with suppress(grpc.RpcError):
                send(channel, method, request)

        list(pool.map(attempt, channels, [b""] * AT_ONCE))
        longest_block(service)
        at_rest = memory_mb(service.pid, "VmRSS")
        list(pool.map(attempt, channels, requests))
        return memory_mb(service.pid, "VmHWM") - at_rest, longest_block(service)


def memory_mb(pid: int, field: str) -> float:
    """Return VmRSS, the resident memory of a process, or VmHWM, its peak."""
    status = Path(f"/proc/{pid}/status").read_text()
    [kib] = re.findall(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kib) / 1024


def longest_block(service: ServingProgram) -> tuple[float, float]:
    """Return the longest block since the last call, in ms of CPU time, and in ms of elapsed time."""
    reports = len(_reports(service))
    service.send_signal(signal.SIGUSR1)
    while len(_reports(service)) == reports:
        time.sleep(0.01)
    cpu_ms, elapsed_ms = _reports(service)[-1]
    return float(cpu_ms), float(elapsed_ms)


def _reports(service: ServingProgram) -> list[tuple[str, str]]:
    return re.findall(r"^longest block (\S+) ms, (\S+) ms\n", service.log, re.MULTILINE)
