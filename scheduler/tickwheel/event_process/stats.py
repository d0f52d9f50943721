"""What one shard's wheel has done, in plain numbers. Written by its driver, read by anybody."""

from dataclasses import dataclass


@dataclass(slots=True)
class WheelStats:
    """Counters since the process started, and the present state.

    ``lateness_ms`` is between the time of the last promoted batch's first timer and its answer, ``lateness_max_ms`` the
    worst of all. ``held`` says that the clock guard holds promotion.
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
