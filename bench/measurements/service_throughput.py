"""The rates of the gRPC service, relative to a server that only echoes requests.

For calls of one message, the load is a closed loop in one process that uses little CPU time (`closed_loop`). It is the
same for the service and for the echo server. On two cores, the load and Redis use one core, and the measured server
uses the other.
"""

import asyncio
import time
from statistics import median

import grpc.aio

from bench.harness.bench_server import BenchServer
from bench.harness.closed_loop import LoopResult, closed_loop
from bench.harness.cpu_clock import process_cpu_us
from bench.harness.echo_server import PATH
from bench.harness.measurement import Measurement, Scale
from bench.measurements.message_life import BATCH, PAYLOAD
from services.serving_program import SERVE, ServingProgram
from tickwheel import Tickwheel
from tickwheel.model import message_id
from tickwheel.rpc.methods import METHODS
from tickwheel.v1 import message_pb2 as messages, message_service_pb2 as calls

IN_FLIGHT, BATCHES_IN_FLIGHT = 32, 4
# Several connections, so that each of two processes gets some: the kernel distributes connections, not calls.
CONNECTIONS = 16


def service_rates(scale: Scale) -> list[Measurement]:
    """Measure calls of one message over one connection, the same calls to the echo server, and calls of 100 messages.

    The rate relative to the echo server is computed for each run. The calls of 100 messages are sent by the grpc
    library, not by `closed_loop`. The first run is the warm-up and is not counted.
    """
    count, batches = scale.size(20_000, 320), scale.size(1_000, 8)
    with (
        BenchServer() as server,
        ServingProgram(server.folder, *SERVE, server.url) as service,
        ServingProgram(server.folder, "-m", "bench.harness.echo_server") as echo,
    ):
        _create_queue(server)
        single, bare = _Sampler(service, METHODS["Enqueue"].path), _Sampler(echo, PATH)
        batched: list[float] = []
        for _ in range(scale.runs() + 1):
            single.run(_single(count))
            bare.run(_single(count))
            batched.append(BATCH * asyncio.run(_batches_a_second(service, batches)))
    share = [100 * ours / theirs for ours, theirs in zip(single.rates, bare.rates, strict=True)]
    about = {"calls": count, "in_flight": IN_FLIGHT, "connections": 1, "processes": 1, "aof": "off"}
    return [
        Measurement(
            "service_enqueue",
            f"rate at which the service answers enqueue calls of one message, {IN_FLIGHT} in flight",
            "calls/s",
            single.rates,
            4_000,
            at_least=True,
            details=about | {"cpu_us_per_call": single.cpu_us()},
        ),
        Measurement(
            "service_enqueue_share",
            "rate of enqueue calls of one message, relative to a gRPC server that only echoes requests",
            "%",
            share,
            55,
            at_least=True,
            details=about | {"echo_per_s": list(map(round, bare.rates)), "echo_cpu_us_per_call": bare.cpu_us()},
        ),
        Measurement(
            "service_batch",
            f"rate at which the service enqueues messages, {BATCH} in each call",
            "messages/s",
            batched[1:],
            25_000,
            at_least=True,
            details={"batches": batches, "in_flight": BATCHES_IN_FLIGHT, "processes": 1, "aof": "off"},
        ),
    ]


def service_processes(scale: Scale) -> list[Measurement]:
    """Compare two processes on one port with one process, with calls of one message over 16 connections."""
    count, path = scale.size(20_000, 320), METHODS["Enqueue"].path
    ratios: list[float] = []
    rates: dict[str, list[int]] = {"one": [], "two": []}
    with (
        BenchServer() as server,
        ServingProgram(server.folder, *SERVE, server.url) as one,
        ServingProgram(server.folder, *SERVE, server.url, "--processes=2") as two,
    ):
        _create_queue(server)
        for run in range(scale.runs() + 1):
            single, double = (
                closed_loop(target_process.target, path, _single(count), IN_FLIGHT, CONNECTIONS)
                for target_process in (one, two)
            )
            if run:
                ratios.append(double.rate / single.rate)
                rates["one"].append(round(single.rate))
                rates["two"].append(round(double.rate))
    about = {"calls": count, "in_flight": IN_FLIGHT, "connections": CONNECTIONS, "per_s": rates, "aof": "off"}
    return [
        Measurement(
            "service_processes",
            "rate of enqueue calls of one message to two processes of the service, relative to one process",
            "×",
            ratios,
            None,
            details=about,
        )
    ]


class _Sampler:
    """The runs of one method on one server. The results leave out the first run."""

    def __init__(self, process: ServingProgram, path: str) -> None:
        self._process = process
        self._path = path
        self._runs: list[tuple[LoopResult, float]] = []

    def run(self, requests: list[bytes]) -> None:
        before = process_cpu_us(self._process.pid)
        load = closed_loop(self._process.target, self._path, requests, IN_FLIGHT)
        self._runs.append((load, (process_cpu_us(self._process.pid) - before) / len(requests)))

    @property
    def rates(self) -> list[float]:
        return [load.rate for load, _ in self._runs[1:]]

    def cpu_us(self) -> dict[str, int]:
        return {
            "server": round(median(us for _, us in self._runs[1:])),
            "client": round(median(load.cpu_us for load, _ in self._runs[1:])),
        }


def _create_queue(server: BenchServer) -> None:
    with Tickwheel(server.url, drive=False) as tickwheel:
        tickwheel.create_queue("rates")


def _new() -> messages.NewMessage:
    return messages.NewMessage(id=message_id.new_message_id(), payload=PAYLOAD)


def _single(count: int) -> list[bytes]:
    return [
        calls.EnqueueRequest(namespace="tw", queue="rates", message=_new()).SerializeToString() for _ in range(count)
    ]


async def _batches_a_second(service: ServingProgram, count: int) -> float:
    requests = iter(
        [calls.EnqueueBatchRequest(namespace="tw", queue="rates", messages=_new_batch()) for _ in range(count)]
    )
    method = METHODS["EnqueueBatch"]
    async with grpc.aio.insecure_channel(service.target, [("grpc.enable_http_proxy", 0)]) as channel:
        send = channel.unary_unary(method.path, method.request.SerializeToString, method.response.FromString)

        async def one_after_the_other() -> None:
            for request in requests:
                await send(request)

        began = time.perf_counter()
        await asyncio.gather(*(one_after_the_other() for _ in range(BATCHES_IN_FLIGHT)))
        return count / (time.perf_counter() - began)


def _new_batch() -> list[messages.NewMessage]:
    return [_new() for _ in range(BATCH)]
