"""What costs are compared with: one ZADD, on the same server and in the same run, right before what is compared."""

import os
import random
from statistics import median
from typing import Any

from bench.harness.bench_server import BenchServer

ZADDS = 60_000
PIPELINED = 1_000
ROUNDS = 3


def zadd_us(server: BenchServer, zadds: int = ZADDS) -> float:
    """Server CPU of one ZADD of a random 16-byte member with a random score, pipelined by 1,000, the set growing from
    empty: the median of three sets."""
    return median(_zadds(server, b"calibration", zadds) for _ in range(ROUNDS))


def _zadds(server: BenchServer, key: bytes, zadds: int) -> float:
    pool = server.redis.connection_pool
    connection: Any = pool.get_connection()
    batches = [b"".join(_zadd(key) for _ in range(PIPELINED)) for _ in range(zadds // PIPELINED)]
    before = server.cpu_us()
    for batch in batches:
        # One write for the whole pipeline: the cheapest way there is for the server.
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
