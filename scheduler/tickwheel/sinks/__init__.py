"""Sinks: deliver the due messages of a queue to a broker instead of to workers.

The forwarder runs as a sidecar of each shard's leader and acts as a worker: it leases due messages, sends them, and
completes a message after the broker has acknowledged it. So exclusive values, order and attempts work as for any
worker. After a crash, a message can arrive twice. Kafka topics are the only kind of sink. The package `kafka` connects
to Kafka.

forwarder.py           the loop of one shard: lease, send, settle, extend
in_flight_messages.py  messages leased for sinks and not yet settled
settler.py             completes, fails, extends and releases these messages
confirmed_sinks.py     how many messages each sink may have in flight
unconfirmed_buffer.py  the part of the send buffer that the other sinks of all shards may take
ready_queues.py        the queues that may have due messages, and their turns
sink.py                the protocol of a sink, its messages and its answers
kafka_sink.py          the sink of a Kafka topic
registry.py            the kinds of sinks, by the scheme of the URL
"""
