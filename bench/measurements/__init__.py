"""The measurements: one module for each group of rows of the results table.

message_life.py        the server CPU time of a message from enqueue to retirement
backlog.py             the same, with many messages that are due on later days
shards.py              the same, in a namespace with many shards
filters.py             filtered dequeues
blocked_messages.py    dequeues past messages that wait for their exclusive value
empty_dequeue.py       dequeues that find nothing
server_memory.py       memory of the server for each message
durability.py          enqueues with each durability
client_throughput.py   rates of one client process
service_throughput.py  rates of the gRPC service
service_fairness.py    calls of a token while other clients leave thousands of calls idle
large_requests.py      memory and event loop of the service during the largest requests
many_queues.py         waits for the messages of many queues on many shards over the service
wakeup_latency.py      the time until a waiting dequeue of the service has a new message
timestone_mix.py       the load that Netflix published for Timestone
worker_overhead.py     a worker with tasks that do nothing, compared with Celery and dramatiq
worker_shapes.py       the same, with several processes and concurrent tasks
worker_pick_up.py      the time until an idle worker with several queues runs a new task
queue_shares.py        the share of each queue in the dequeues of a worker with several queues
celery_round_trip.py   the time until the caller of a Celery task that moved to Tickwheel has the result
timing_wheel.py        the timing wheel in memory
lateness.py            lateness of messages at a worker
takeover.py            lateness while another event process takes over
lease_takeover.py      the same after a kill, with an election by lease
worker_handover.py     the time until another worker drives after SIGTERM, with the same election
election_quiet.py      wake-ups and calls of an election by lease while nothing happens
queue_metrics.py       commands that read the metrics of queues
failover.py            the kill of a primary of a cluster
relay.py               the publication of the history to Kafka
"""
