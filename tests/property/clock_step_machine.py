"""The machine of `scheduler_machine` with additional rules that step the server's clock."""

import hypothesis.strategies as st
from hypothesis.stateful import rule

from tests.property.machine_values import clients
from tests.property.model_messages import INVISIBLE, PENDING
from tests.property.scheduler_machine import SchedulerMachine
from tickwheel.limits import CLOCK_GUARD_MS


class ClockStepMachine(SchedulerMachine):
    """All operations in any order. The server's clock often steps to the limit of the clock guard or beyond."""

    @rule(data=st.data(), client=clients, beyond=st.sampled_from([CLOCK_GUARD_MS, CLOCK_GUARD_MS + 1, 50_000]))
    def enqueue_times_reached_by_a_clock_step(self, data: st.DataObject, client: int, beyond: int) -> None:
        """Step the clock to the limit of the guard or beyond it. Then enqueue messages that are due at once."""
        name = self._name(data)
        self._step_the_clock(data.draw(st.integers(0, self.shards - 1)), beyond)
        due = st.just({"due": self.model.now})
        self._enqueue(name, client, data.draw(st.lists(self._arguments(name, due), min_size=1, max_size=2)))

    @rule(data=st.data(), client=clients, beyond=st.sampled_from([CLOCK_GUARD_MS, CLOCK_GUARD_MS + 1]))
    def reschedule_to_a_time_reached_by_a_clock_step(self, data: st.DataObject, client: int, beyond: int) -> None:
        name, key = self._some_key(data, INVISIBLE, PENDING)
        if key in self.model.queues[name].messages:
            self._step_the_clock(self.model.queues[name].messages[key].shard, beyond)
        self._reschedule(client, name, key, {"due": self.model.now})

    def _step_the_clock(self, shard: int, beyond: int) -> None:
        """Step the clock to `beyond` ms after the latest time of a shard's guard, unless the clock is already later."""
        high = self.under_test.stored.high(shard) or self.model.now
        self.under_test.turn(max(0, high + beyond - self.model.now))
