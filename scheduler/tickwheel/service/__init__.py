"""The gRPC service: enqueues, delivers and administers messages over the network, for clients in any language.

Any number of identical processes serve one Redis server or cluster. A process stores nothing, so a client can send
a call to any process, and retry the call at another. The service authenticates and authorizes calls, limits them, and
coalesces concurrent calls into fewer round trips. Each call then runs as a plan of `operations`. The service drives no
shard: event processes do.

server                one process, which starts, serves and drains the gRPC server
grpc_options          limits of connections and calls, as gRPC options
grpc_wakeups          a server of grpc whose events never wait for the event loop
multiprocess          several processes on one port
startup_checks        checks of certificates, files and addresses before the service listens
tls                   TLS credentials of the server

authentication        the identification of the caller of a call by its token
authorization         callers, roles, and the store of valid tokens
token_file            the file of tokens, reloaded after a change
token_quota           limits of one token: message rate, waiting calls, expiry
shared_quota          the use of tokens, counted over all processes of a service

call_limits           places of calls, bytes of large requests, and the names of callers
answer_limits         answers that are built at a time, and those that clients have not read
fair_limit            limits that callers share, of which each leaves a part for others
request_reader        the requests of a call, checked before they are parsed
standard_services     health and reflection, with limits of their own

method_table          one row for each RPC: role, cost, metric
message_handlers      the RPCs of MessageService
lease_handlers        the RPCs of MessageService for leased messages
queue_handlers        the RPCs of QueueService
request_fields        fields that several requests have
resolve_queue         the namespace and queue that a request names
namespaces            the open namespaces of the process
namespace_alarm       a warning about each open namespace that nobody drives
driver_check          a check for clients whether event processes drive a namespace
dequeue_batch         many dequeue requests in one call
stream_credit         flow control of a dequeue stream, and the limit of open streams

batching              fewer round trips for concurrent calls

call_observer         metrics, span and log line of each call
repeated_calls        the number of equal calls that were rejected or failed, in place of a log line for each
counters              the values behind the metrics
metrics               the metrics of one process
multiprocess_metrics  the sum of the metrics of several processes
"""
