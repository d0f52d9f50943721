"""The plan of a load: the time, delay, run time and outcome of every message. The plan follows from the seed."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tickwheel.load.scenario.scenario import QueueLoad, Scenario


@dataclass(slots=True)
class Arrival:
    """A planned message. All times are in seconds of the scenario.

    ``at_s`` is the time of the enqueue, from the start of the run.
    """

    at_s: float
    queue: str
    delay_s: float
    run_s: float
    failures: int = 0
    """Number of attempts that fail. If it is the queue's ``max_attempts``, no attempt succeeds."""
    cancel_s: float | None = None
    """Time from the enqueue to the cancel; None if the message is not cancelled."""
    deadline_s: float | None = None
    """Deadline relative to the due time. If it is None, the deadline is the due time."""
    metadata: dict[str, str] | None = None

    @property
    def due_s(self) -> float:
        return self.at_s + self.delay_s

    @property
    def is_cancelled(self) -> bool:
        """Return whether the message is cancelled before it is due, so that no worker receives it."""
        return self.cancel_s is not None and self.cancel_s < self.delay_s


def plan_arrivals(scenario: Scenario) -> Iterator[Arrival]:
    """Yield all arrivals of the run, ordered by time."""
    if scenario.recording:
        return _recorded_arrivals(scenario)
    streams = [_queue_arrivals(scenario, queue) for queue in scenario.queues]
    return heapq.merge(*streams, key=lambda arrival: arrival.at_s)


def expected_count(scenario: Scenario) -> int:
    """Return the expected number of arrivals, at most ``max_messages``."""
    if scenario.recording:
        count = sum(_is_in(scenario, row.arrival_s) for row in scenario.recording)
    else:
        until_s = scenario.start_s + scenario.length_s
        count = round(sum(q.arrivals.count(scenario.start_s, until_s) for q in scenario.queues if q.arrivals))
    return count if scenario.max_messages is None else min(count, scenario.max_messages)


def draw_arrival(queue: QueueLoad, at_s: float, random: Random) -> Arrival:
    """Draw the message that arrives in a queue at a time."""
    delay_s = queue.delay.draw(random)
    arrival = Arrival(at_s, queue.name, delay_s, queue.run.draw(random), _failures(queue, random))
    if queue.cancel is not None and random.random() < queue.cancel.share:
        arrival.cancel_s = queue.cancel.after.draw(random)
    if queue.urgency:
        arrival.deadline_s = random.choices(queue.urgency, [item.share for item in queue.urgency])[0].offset_s
    if queue.exclusive is not None or queue.metadata:
        arrival.metadata = {item.key: item.draw(random) for item in queue.metadata}
        if queue.exclusive is not None:
            arrival.metadata[queue.exclusive.key] = queue.exclusive.draw(random)
    return arrival


def _queue_arrivals(scenario: Scenario, queue: QueueLoad) -> Iterator[Arrival]:
    if queue.arrivals is None:
        return
    # Times and contents have a random generator each. So the number of random numbers that the times need does not
    # affect the contents of the messages.
    times, contents = Random(f"{scenario.seed}/{queue.name}/times"), Random(f"{scenario.seed}/{queue.name}")
    until_s = scenario.start_s + scenario.length_s
    for time_s in queue.arrivals.draw(scenario.start_s, until_s, times):
        yield draw_arrival(queue, time_s - scenario.start_s, contents)


def _recorded_arrivals(scenario: Scenario) -> Iterator[Arrival]:
    random = {queue.name: Random(f"{scenario.seed}/{queue.name}") for queue in scenario.queues}
    for row in scenario.recording:
        if _is_in(scenario, row.arrival_s):
            failures = _failures(scenario.queue(row.queue), random[row.queue])
            yield Arrival(row.arrival_s - scenario.start_s, row.queue, 0.0, row.run_s, failures)


def _is_in(scenario: Scenario, time_s: float) -> bool:
    return scenario.start_s <= time_s < scenario.start_s + scenario.length_s


def _failures(queue: QueueLoad, random: Random) -> int:
    count = 0
    while queue.failures and count < queue.max_attempts and random.random() < queue.failures:
        count += 1
    return count
