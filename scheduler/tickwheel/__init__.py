"""A delay scheduler and priority queue on Redis or Valkey: timing wheel, exclusive queues, exact history.

`Tickwheel` is the blocking client; `tickwheel.aio` has the asyncio client. A message is delivered when it is due, the
earliest deadline first, to one worker at a time. If a lease ends before the worker settles the message, the message is
delivered again. This package exports the public names. The other public modules are `aio`, `errors`, `limits`,
`tracing`, `tasks`, `events`, `celery`, `testing`, `worker.selectors`, `embedded`, `doctor`, `event_process` and `v1`;
all others may move.

    aio.py          the asyncio client: public names
    errors.py       all exceptions, in one tree
    limits.py       every limit and default
    plan.py         plans: operations as generators of steps, without I/O
    tracing.py      OpenTelemetry: the switch for tracing, and the spans of workers
    driving.py      the program `python -m tickwheel.driving`: an event process
    message.py      names that have moved, for messages that were pickled before the move
    __main__.py     the program `python -m tickwheel`: the command line

    client/         the public clients, blocking and asyncio
    operations/     the operations of clients, as plans
    model/          messages, queue configurations, results, and the validation of arguments
    storage/        keys, scripts and packed records
    redis/          executors that run plans on Redis, Valkey and clusters
    rpc/            conversions and tables that the gRPC client and the service share
    driver/         the timing wheel of one shard
    election/       the election of a leader for each shard
    event_process/  the process that leads shards and drives their wheels
    relay/          relay: events of an outbox to Kafka
    sinks/          sinks: due messages to Kafka topics
    kafka/          the Kafka library and its producers
    events/         readers of the history in Kafka
    service/        the gRPC service
    tasks/          functions as messages: tasks, queues and schedules of an app
    worker/         `tickwheel worker`: processes that run tasks
    celery/         migration from Celery
    telemetry/      metric specifications, histograms and spans
    embedded/       the bundled Valkey server as a child process
    doctor/         audits of stored data
    load/           simulated production load
    demo/           the demo with a day of real flights
    testing/        the test kit for users
    cli/            the command line
    runtime/        processes, threads, logs and clocks
    v1/             messages generated from proto/
"""

from tickwheel.runtime.gc_freeze import without_gc

with without_gc():
    from tickwheel.client import Message, Queue, Tickwheel
    from tickwheel.embedded import EmbeddedServerError
    from tickwheel.errors import (
        ArgumentsRefused,
        DataLoss,
        Fenced,
        Forbidden,
        HandshakeFailed,
        IdConflict,
        InvalidArgument,
        InvalidTransition,
        LeaseLost,
        LimitExceeded,
        MessageNotFound,
        NamespaceGone,
        NamespaceInUse,
        NamespaceNotFound,
        NoResult,
        NotDurable,
        OutboxFull,
        OutOfMemory,
        PayloadTooLarge,
        QueueBlocked,
        QueueConfigConflict,
        QueueNotEmpty,
        QueueNotFound,
        ResultExpired,
        SessionExpired,
        TickwheelError,
        Unauthenticated,
        Unavailable,
    )
    from tickwheel.model.message import EnqueueResult, MessageView, NewMessage
    from tickwheel.model.results import Change, Explanation, ForecastMinute, Lateness

__version__ = "0.1.0"

__all__ = [
    "ArgumentsRefused",
    "Change",
    "DataLoss",
    "EmbeddedServerError",
    "EnqueueResult",
    "Explanation",
    "Fenced",
    "Forbidden",
    "ForecastMinute",
    "HandshakeFailed",
    "IdConflict",
    "InvalidArgument",
    "InvalidTransition",
    "Lateness",
    "LeaseLost",
    "LimitExceeded",
    "Message",
    "MessageNotFound",
    "MessageView",
    "NamespaceGone",
    "NamespaceInUse",
    "NamespaceNotFound",
    "NewMessage",
    "NoResult",
    "NotDurable",
    "OutOfMemory",
    "OutboxFull",
    "PayloadTooLarge",
    "Queue",
    "QueueBlocked",
    "QueueConfigConflict",
    "QueueNotEmpty",
    "QueueNotFound",
    "ResultExpired",
    "SessionExpired",
    "Tickwheel",
    "TickwheelError",
    "Unauthenticated",
    "Unavailable",
]
