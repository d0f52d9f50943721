"""From the outbox of a shard to Kafka."""
