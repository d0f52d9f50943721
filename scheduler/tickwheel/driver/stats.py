"""Counters and state of one shard. The driver and the sidecars write them; any thread may read them."""

from dataclasses import dataclass


@dataclass(slots=True)
class WheelStats:
    """Counters since the process started, and the current state.

    lateness_ms        lateness of the first message in the last batch that was promoted: the maximum of the batch
    lateness_max_ms    the maximum of ``lateness_ms``
    corrupt_entries    entries of the inbox, and chunks of slots, that were skipped because they are not timers
    corrupt_values     values of the shard's clock that a claim replaced because no event process writes such values
    corrupt_events     entries of the outbox that the relay skipped because they are not events of a queue
    held               whether the clock guard holds promotion
    relayed            transitions that Kafka has acknowledged
    outbox_age_ms      age of the oldest entry of the outbox; the relay refreshes all fields named outbox_* every second
    sink_acknowledged  messages that the sinks' brokers have accepted
    sink_refused       messages that the sinks' brokers have rejected
    sink_in_flight     messages sent to the sinks' brokers and not yet answered
    """

    epoch: int = 0
    in_memory: int = 0
    unfiled: int = 0
    slots: int = 0
    inbox_timers: int = 0
    filed_timers: int = 0
    fired_timers: int = 0
    early_answers: int = 0
    unknown_queue_timers: int = 0
    corrupt_entries: int = 0
    corrupt_values: int = 0
    corrupt_events: int = 0
    lateness_ms: int = 0
    lateness_max_ms: int = 0
    held: bool = False
    clock_steps: int = 0
    relayed: int = 0
    outbox_entries: int = 0
    outbox_bytes: int = 0
    outbox_dropped: int = 0
    outbox_age_ms: int = 0
    sink_acknowledged: int = 0
    sink_refused: int = 0
    sink_in_flight: int = 0
