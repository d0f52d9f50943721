"""The relay: publishes the transitions in a shard's outbox to Kafka (transactional outbox).

The relay runs as a sidecar of the shard's leader. It publishes each transition at least once and without gaps:
after a failure it sends the outbox again from the start, in the same order. It trims an entry only after the broker has
acknowledged the entry and all entries before it. Connecting to Kafka is left to `kafka`, removing duplicates to the
readers in `events`.

relay.py         the relay of one shard, which publishes entries, tracks them in flight, and trims them
outbox_level.py  log lines about an outbox that fills up or recovers
"""
