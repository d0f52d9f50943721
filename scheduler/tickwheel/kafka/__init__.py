"""The one place that imports confluent_kafka."""
