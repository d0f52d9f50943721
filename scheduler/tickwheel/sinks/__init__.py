"""Due messages to Kafka topics, Redis lists and channels."""
