"""Executors: run plans on Redis, Valkey or a Redis Cluster.

A plan (`tickwheel.operations`) decides which calls an operation needs, and yields them in *rounds*. An executor sends
the requests of a round to the servers of their shards, in one pipeline for each server. It repeats requests without an
answer until the client's timeout. It follows moved hash slots, loads missing scripts and waits for replicas. A retry is
safe because every call is idempotent: by message id, by lease token or by client session. The blocking and the asyncio
executor share the modules without I/O, which make the decisions.

    blocking_executor.py  RedisExecutor: the executor with blocking sockets; generated from asyncio_executor.py
    asyncio_executor.py   AsyncRedisExecutor: the executor for one event loop
    driver_executor.py    DriverExecutor: a RedisExecutor with connections for drivers
    round_trip.py         RoundTrip: the state machine of one round; no I/O
    replies.py            commands of a request, and the meaning of its answers; no I/O
    retry_budget.py       RetryBudget: back-off and timeout of a round
    encryption.py         the check of servers without TLS, if TLS is required
    topology.py           Topology: the server of each hash slot; no I/O
    pools.py              ConnectionPools: blocking connections
    asyncio_pools.py      AsyncConnectionPools: connections of one event loop
    wait_line.py          Line: the waiting dequeues of one queue, and their turns; no I/O
    wait_list.py          WaitList: the waiting dequeues of a process, by queue
    waiter_handle.py      WaiterHandle: the handle of a dequeue that waits for one queue
    closed_queues.py      ClosedQueues: the waiting calls of queues that do not exist or are blocked; no I/O
    joint_wait.py         JointWaitHandle: the handle of a call that waits for several queues
    end_waits.py          EndWaits: the calls of a process that wait until a message ends; no I/O
    shared_searches.py    SharedSearches: equal searches of waiting dequeues are made once
    subscription.py       Subscription: of a process to the wake channels of one queue
    subscriptions.py      Subscriptions: of a process to wake channels; no I/O
    awaited_answers.py    AwaitedAnswers: a part of the subscriptions is sent when the last part is answered; no I/O
    caller_lines.py       CallerLines: channels and wake-ups of several callers, who take turns; no I/O
    caller_channels.py    CallerChannels: the limit of the wake channels of a caller of the service; no I/O
    probes.py             Probes: before a sweep, each server shows that its announcements arrive; no I/O
    end_refusals.py       EndRefusals: the servers that refuse to end subscriptions; no I/O
    wake_channels.py      WakeChannels: the wake channels of queues, by server; no I/O
    wakeup_thread.py      WakeupThread: the receiver of wake-ups for threads
    wakeup_task.py        WakeupTask: the receiver of wake-ups for tasks
    task_waiters.py       TaskWaiter and others: the handles of waiting tasks, and the pace at which these are woken
    channel_listener.py   ChannelListener: subscriptions of a thread to channels of one server
    url.py                URLs: validation, parts and redaction
    acl.py                the ACL users of a namespace
"""
