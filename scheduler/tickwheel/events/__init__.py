"""The history in Kafka: what the relay publishes, and how a program reads it, each transition once.

encoding, transition.schema.json    what a record is
reading, order, partitions          `read`: records to transitions, each once, in order for each message
kafka                               the client library, an extra
"""

from tickwheel.events.encoding import SCHEMA_VERSION, Transition
from tickwheel.events.kafka import TOPIC
from tickwheel.events.order import Gap
from tickwheel.events.reading import read

__all__ = ["SCHEMA_VERSION", "TOPIC", "Gap", "Transition", "read"]
