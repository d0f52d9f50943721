"""The client side of the gRPC service: operations as RPCs, and the executors that send them.

A client with a ``grpc://`` or ``grpcs://`` URL needs no access to Redis. Each call is retried until the client's
timeout, and takes effect once: if neither the message's id nor the lease's token makes an RPC idempotent, the RPC
carries a request id of a client session. This package needs the extra `grpc`; only `channel.py` may be imported without
the extra. Conversions between values and protobuf messages are in `tickwheel.rpc`, which the service uses, too.

    channel.py             the channel, the backend and the executors of a URL; imports grpc on demand
    grpc_backend.py        GrpcBackend: operations as plans of RPCs
    grpc_queue_backend.py  GrpcQueueBackend: the part of GrpcBackend for queues and namespaces
    request_chunks.py      requests of bounded size for messages and leases
    channel_calls.py       ChannelCalls: the common part of both executors
    blocking_executor.py   GrpcExecutor: the executor for threads
    asyncio_executor.py    AsyncGrpcExecutor: the executor for one event loop
    call_retry.py          CallRetry: time limits, back-off and errors of one call
    dequeue_batcher.py     DequeueBatcher: concurrent polls of one event loop in one RPC
    message_pages.py       GrpcMessagePager: the list of a queue's messages
    grpc_message_wait.py   GrpcMessageWait: the wait for the messages of several queues
    grpc_remover.py        GrpcRemover: purges and deletions as sequences of RPCs
    handshake_probe.py     HandshakeProbe: detection of TLS errors that a retry cannot fix
"""
