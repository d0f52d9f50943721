"""The history of messages in Kafka: the format of the records, and a reader that returns each transition once.

The relay publishes each transition at least once. `read` removes the duplicates, keeps the order of each message's
transitions, and reports gaps and records that are not transitions. `read` needs the extra `kafka`. Publishing is left
to `relay`.

reader.py               `read`: the transitions of the topic
deduplication.py        detection of transitions that were read before, and of gaps
partition_offsets.py    detection of partitions that another reader of the group has read
encoding.py             transitions as records of Kafka
transition.schema.json  the JSON schema of a record's value
"""

from tickwheel.events.deduplication import Gap
from tickwheel.events.encoding import SCHEMA_VERSION, Transition
from tickwheel.events.reader import UnreadableRecord, read
from tickwheel.kafka.library import TOPIC

__all__ = ["SCHEMA_VERSION", "TOPIC", "Gap", "Transition", "UnreadableRecord", "read"]
