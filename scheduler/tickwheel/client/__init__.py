"""The public clients, blocking and asyncio, and the backends and executors behind them.

A client call becomes a plan (`tickwheel.plan`). A backend builds the plan, and an executor runs it. RedisBackend calls
Redis or Valkey directly, and GrpcBackend calls the gRPC service. The blocking and the asyncio client use the same
backends, so an operation has the same rules, errors and limits in both clients. A call is retried until the client's
timeout, and then raises Unavailable. The operations themselves are in `tickwheel.operations`; the connections to Redis
and Valkey are in `tickwheel.redis`.

    blocking.py            Tickwheel: the blocking client; thread-safe
    blocking_queue.py      Queue and Message of the blocking client; generated from asyncio_queue.py
    blocking_namespace.py  methods of the blocking Tickwheel that run plans; generated from asyncio_namespace.py
    asyncio.py             Tickwheel: the asyncio client
    asyncio_queue.py       Queue and Message of the asyncio client
    asyncio_namespace.py   methods of the asyncio Tickwheel that run plans
    settings.py            ClientSettings: the validated options of a client
    encryption.py          a warning about, or an error for, connections to other machines without TLS
    connect.py             the choice of the backend and the executor for a URL
    backend.py             Backend: the interface of both backends
    redis_backend.py       RedisBackend: operations as script calls on the shards
    expected_queues.py     ExpectedQueues: the declared queues of an app, whose place no other queue may take; no I/O
    tracing_backend.py     TracingBackend: spans around the operations of another backend
    local_processes.py     the embedded server, the event process and the check that a client starts
    last_resort.py         LastResort: a child process that drives while no event process does
    leader_watch.py        LeaderWatch: whether nobody drives any more, for a program that drains
    sink_watch.py          SinkWatch: notices that a queue has no sink any more
    undriven_notice.py     UndrivenNotice: a warning of a client whose messages no event process makes deliverable
    driver_watch.py        DriverWatch: whether event processes drive the namespace
    exit_codes.py          ExitCode: the exit codes of programs that errors end
    admin.py               Admin: plans of administrative commands
    grpc/                  GrpcBackend, its executors, and the retries of calls
"""

from tickwheel.client.blocking import Tickwheel
from tickwheel.client.blocking_queue import Message, Queue

__all__ = ["Message", "Queue", "Tickwheel"]
