"""The operations on queues and messages, as plans without I/O (`tickwheel.plan`).

An operation checks its arguments, packs script calls, and unpacks the replies. Executors (`tickwheel.redis`) send the
calls and retry them on network errors. The blocking client, the asyncio client and the service run the same plans.
The scripts in `lua/` make the changes; no code in this package changes a message directly.

    context.py            NamespaceContext: the shared state of one client, and the cache of configurations
    dispatch.py           script calls to shards: stale configurations, expired sessions, errors
    sessions.py           client sessions, by which a retried call is executed once
    answered_calls.py     which shards have answered a call with a request id
    results.py            results of scripts for each message, and their errors
    locate.py             shard and name of a message, and calls on one message by its id

    enqueue.py            enqueue, in rounds of bounded size
    message_packer.py     the checked and packed form of a message
    dequeue.py            dequeue, with waiting
    dequeue_options.py    the checked arguments of a dequeue
    leased_messages.py    the messages of a dequeue from a reply of the script
    ready_shards.py       the shards that a dequeue calls
    head_cache.py         the most urgent deadlines of the last replies
    several_queues/       dequeue of several queues in one call
    exact_order.py        exact order over several shards
    settle.py             complete, fail, release, extend
    resume_lease.py       a leased message from its id and token
    cancel.py             cancel
    reschedule.py         reschedule
    redrive.py            redrive

    inspect.py            get, counts, lateness, depth, forecast
    explain.py            the reason why a message is not running
    scan.py               all messages of a queue, page by page
    page_token.py         the position of a scan or purge
    outbox_reader.py      the history of a namespace

    namespace.py          open, check and identify a namespace
    namespace_options.py  the checked options of a namespace
    queues.py             create, update, block and list queues
    removal/              purge and delete queues, and delete namespaces
    settings.py           settings of a namespace
    driving/              whether a program may drive a namespace as a last resort
    server_checks.py      version, durability and permissions of a server
    server_info.py        what a server reports about itself (INFO), and warnings
    attestation.py        the attestation that a server writes to its disk before it answers
    shard_status.py       leaders, inboxes and lateness of shards
"""
