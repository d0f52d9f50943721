"""The history in Kafka: what the relay publishes, and how a program reads it, each transition once.

encoding, transition.schema.json    what a record is
reading, order, partitions          `read`: records to transitions, each once, in order for each message
kafka                               the client library, an extra
"""

from tickwheel.events.deduplication import Gap
from tickwheel.events.encoding import SCHEMA_VERSION, Transition
from tickwheel.events.reader import read
from tickwheel.kafka.library import TOPIC

__all__ = ["SCHEMA_VERSION", "TOPIC", "Gap", "Transition", "read"]
