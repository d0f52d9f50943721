"""Calls of one token and health checks, while other clients leave thousands of calls idle.

The other clients open their calls in portions, as fast as the service accepts them. The row measures the calls of the
token after the service has accepted all of them. Until then, no call of the token may fail, but its calls wait: the
details have the longest latency.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from bench.harness.bench_server import BenchServer
from bench.harness.measurement import Measurement, Scale
from bench.measurements.message_life import PAYLOAD
from services.serving_program import SERVE, ServingProgram
from tickwheel import Tickwheel
from tickwheel.rpc.methods import METHODS
from tickwheel.service.authorization import digest_of
from tickwheel.v1 import message_pb2 as messages, message_service_pb2 as calls

RUNS = 3
STREAMS, CALLS = 12_000, 10_000
GOOD, OTHER = "tw_good-of-bench", "tw_other-of-bench"
IN_FLIGHT, PACE_S, PROBE_S = 4, 0.02, 0.1
_CONNECTIONS = 4


def service_fairness(scale: Scale) -> list[Measurement]:
    """Compare the p99 of a token's calls with and without idle calls of others, in turn, each with a new service."""
    seconds, share = (12.0, 1) if not scale.quick else (0.5, 100)
    ratios: list[float] = []
    p99: dict[str, list[float]] = {"with": [], "without": []}
    in_burst_s: list[float] = []
    failed = probes = 0
    with BenchServer() as server:
        tokens = _write_tokens(server.folder)
        with Tickwheel(server.url, drive=False) as tickwheel:
            tickwheel.create_queue("fair")
        for _ in range(scale.runs(RUNS)):
            for name in ("without", "with"):
                with ServingProgram(server.folder, *SERVE, server.url, f"--tokens={tokens}") as service:
                    asyncio.run(_load(service.target, min(seconds, 2)))
                    with _idle_calls(service.target, share if name == "with" else 0) as longest_s:
                        latencies, health = asyncio.run(_load(service.target, seconds))
                if name == "with":
                    in_burst_s.append(round(longest_s, 2))
                p99[name].append(quantiles(latencies, n=100)[98])
                probes += len(health)
                failed += health.count(False)
            ratios.append(p99["with"][-1] / p99["without"][-1])
    if failed:
        raise RuntimeError(f"{failed} of {probes} health checks failed")
    about = {
        "in_flight": IN_FLIGHT,
        "seconds": seconds,
        "health_checks": probes,
        "longest_call_while_they_open_s": in_burst_s,
        "processes": 1,
        "aof": "off",
    }
    return [
        Measurement(
            "service_fairness",
            f"99th percentile of a token's enqueue calls after others have opened {STREAMS:,} idle streams and"
            f" {CALLS:,} calls without a request, of which the service rejects or ends most, relative to a run without"
            " them",
            "×",
            ratios,
            2,
            details=about | {f"p99_ms_{name}": [round(ms, 2) for ms in values] for name, values in p99.items()},
        )
    ]


def _write_tokens(folder: Path) -> Path:
    path = folder / "fair-tokens.toml"
    path.write_text(
        "".join(
            f'[[token]]\nname = "{token[3:]}"\nsha256 = "{digest_of(token).hex()}"\n'
            'roles = ["produce", "consume"]\nnamespaces = ["*"]\n'
            for token in (GOOD, OTHER)
        )
    )
    path.chmod(0o600)
    return path


@contextmanager
def _idle_calls(target: str, share: int) -> Iterator[float]:
    """Open the idle calls in the ``with`` block, divided by ``share``, from two other processes. 0 means none. Yield
    the longest latency of the token's calls while the service accepts the idle calls, in s.
    """
    if not share:
        yield 0.0
        return
    streams, unary = STREAMS // 2 // _CONNECTIONS // share, CALLS // _CONNECTIONS // share
    watch = f"/grpc.health.v1.Health/Watch,{streams},request"
    reflection = f"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo,{streams}"
    half_open = f"{METHODS['Enqueue'].path},{unary}"
    command = [sys.executable, "-m", "bench.harness.idle_calls", target, OTHER]
    programs = [
        subprocess.Popen([*command, *calls_of], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for calls_of in ([watch, reflection] * _CONNECTIONS, [half_open] * _CONNECTIONS)
    ]
    try:
        with ThreadPoolExecutor(len(programs)) as pool:
            lines = [pool.submit(program.stdout.readline) for program in programs if program.stdout is not None]
            longest_s = asyncio.run(_call_until_done(target, lines))
        if any(line.result() != b"idle\n" for line in lines):
            raise RuntimeError("a program with idle calls has ended")
        yield longest_s
        if any(program.poll() is not None for program in programs):
            raise RuntimeError("a program with idle calls has ended")
    finally:
        for program in programs:
            program.communicate(timeout=20)


async def _call_until_done(target: str, futures: Sequence[Future[bytes]]) -> float:
    """Call until all futures are done. Return the longest latency in s."""
    longest_s = 0.0
    async with grpc.aio.insecure_channel(target) as channel:
        while not all(future.done() for future in futures):
            began = time.perf_counter()
            await _enqueue(channel, 60)
            longest_s = max(longest_s, time.perf_counter() - began)
            await asyncio.sleep(PACE_S)
    return longest_s


def _enqueue(channel: grpc.aio.Channel, timeout_s: float) -> Awaitable[Any]:
    method = METHODS["Enqueue"]
    request = calls.EnqueueRequest(namespace="tw", queue="fair", message=messages.NewMessage(payload=PAYLOAD))
    send = channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)
    return send(request, timeout=timeout_s, metadata=(("authorization", f"Bearer {GOOD}"),))


async def _load(target: str, seconds: float) -> tuple[list[float], list[bool]]:
    """Return the latency of each call in ms, and whether each health check was answered."""
    latencies: list[float] = []
    health: list[bool] = []
    async with grpc.aio.insecure_channel(target) as channel, grpc.aio.insecure_channel(target) as probing:
        health_stub: Any = HealthStub(probing)
        end = time.perf_counter() + seconds

        async def call_until_end() -> None:
            while (began := time.perf_counter()) < end:
                await _enqueue(channel, 20)
                latencies.append(1_000 * (time.perf_counter() - began))
                await asyncio.sleep(PACE_S)

        async def probe_until_end() -> None:
            while time.perf_counter() < end:
                try:
                    health.append(bool((await health_stub.Check(HealthCheckRequest(), timeout=5)).status))
                except grpc.aio.AioRpcError:
                    health.append(False)
                await asyncio.sleep(PROBE_S)

        await asyncio.gather(probe_until_end(), *(call_until_end() for _ in range(IN_FLIGHT)))
    return latencies, health
