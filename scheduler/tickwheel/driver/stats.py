"""What one shard's wheel has done, in plain numbers. Written by its driver, read by anybody."""

from dataclasses import dataclass


@dataclass(slots=True)
class WheelStats:
    """Counters since the process started, and the present state.

    ``lateness_ms`` is between the time of the last promoted batch's first timer and its answer, ``lateness_max_ms`` the
    worst of all. ``relayed`` counts transitions that Kafka has acknowledged; the outbox's figures are a second old at
    most, and ``outbox_age_ms`` is how long its oldest entry has waited. The sinks' brokers have taken
    ``sink_acknowledged`` messages and refused ``sink_refused``; they have not answered for ``sink_in_flight``. ``held``
    says that the clock guard holds promotion.
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
