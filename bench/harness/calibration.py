"""The unit of server CPU time: one pipelined ZADD on the same server, measured immediately before each run."""

import os
import random
from collections.abc import Callable
from statistics import median
from typing import Any

from bench.harness.bench_server import BenchServer
from bench.harness.measurement import Scale

ZADDS, ZADDS_QUICK = 60_000, 2_000
PIPELINED = 1_000
ROUNDS = 3


def ratios_to_zadd(
    server: BenchServer, scale: Scale, runs: int, work_us: Callable[[], float], *, warm_up: bool = True
) -> tuple[list[float], list[float]]:
    """Return for each run the CPU time of the work in ZADDs, and the CPU time of a ZADD in microseconds.

    The value of a measurement is the median of its runs. ``work_us`` does the work and returns its CPU time. With
    ``warm_up``, the work is first done once without counting: during the first run on a server, the kernel allocates
    memory that the server then keeps.
    """
    if warm_up:
        work_us()
    zadds, ratios = [], []
    for _ in range(runs):
        zadds.append(zadd_us(server, scale.size(ZADDS, ZADDS_QUICK)))
        ratios.append(work_us() / zadds[-1])
    return ratios, zadds


def zadd_us(server: BenchServer, zadds: int = ZADDS) -> float:
    """Return the server CPU time of one ZADD in microseconds: the median of three rounds.

    A round starts with an empty set. Each ZADD adds a random member of 16 bytes with a random score. A
    pipeline has 1,000 ZADDs.
    """
    return median(_zadds(server, b"calibration", zadds) for _ in range(ROUNDS))


def _zadds(server: BenchServer, key: bytes, zadds: int) -> float:
    pool = server.redis.connection_pool
    connection: Any = pool.get_connection()
    batches = [b"".join(_zadd(key) for _ in range(PIPELINED)) for _ in range(zadds // PIPELINED)]
    before = server.cpu_us()
    for batch in batches:
        # One write for the whole pipeline costs the server least.
        connection._sock.sendall(batch)
        for _ in range(PIPELINED):
            connection.read_response()
    after = server.cpu_us()
    pool.release(connection)
    server.redis.delete(key)
    return (after - before) / (len(batches) * PIPELINED)


def _zadd(key: bytes) -> bytes:
    score = repr(random.random() * 1e12).encode()
    return b"*4\r\n$4\r\nZADD\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$16\r\n%s\r\n" % (
        *(len(key), key, len(score), score),
        os.urandom(16),
    )
