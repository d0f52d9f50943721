"""The connection to Kafka: producers, and the client library confluent-kafka.

The library is an extra: it is imported when it is first needed. Only this package imports it. The settings of the
producers ensure that no record is lost or reordered. Encoding records is left to `events` and `sinks`.

library.py   the library, imported on demand, and the throttle of its log
producer.py  the producers that all shards of an event process share
options.py   the options with which a program reaches Kafka
settings.py  the settings of the library, from options and from a file
"""
