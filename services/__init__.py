"""Real servers for tests and demonstrations: Valkey replica sets and clusters, ZooKeeper, Kafka.

Each is started without root, on free ports of this machine, with its data in a folder that the caller gives.
"""
