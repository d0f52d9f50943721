"""The rules that purge queues, and delete queues and create them again."""

from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.property.machine_values import clients, purged_states
from tests.property.model import Model
from tests.property.namespace_under_test import NamespaceUnderTest
from tickwheel import Message


class RemovalRules(RuleBasedStateMachine):
    """A part of `SchedulerMachine`."""

    under_test: NamespaceUnderTest
    model: Model
    deliveries: list[Message]
    requests: list[tuple[int, str, dict[str, Any], list[Message]]]

    def _name(self, data: st.DataObject) -> str:
        """Return the name of a queue."""
        raise NotImplementedError

    @rule(data=st.data(), client=clients, states=purged_states)
    def purge(self, data: st.DataObject, client: int, states: list[str]) -> None:
        name = self._name(data)
        assert self.under_test.queue(client, name).purge(states) == self.model.queues[name].purge(states)

    @rule(data=st.data(), client=clients, is_wanted=st.integers(0, 3))
    def delete_a_queue_and_create_it_again(self, data: st.DataObject, client: int, is_wanted: int) -> None:
        if is_wanted:
            # Most messages should live longer than that.
            return
        name = self._name(data)
        self.under_test.delete_and_create(client, name)
        self.deliveries = [message for message in self.deliveries if message.queue != name]
        self.requests = [request for request in self.requests if request[1] != name]
