"""Reads the outbox: every transition, in the order in which the server recorded them."""

from typing import Any

from tickwheel.storage import transition as transitions
from tickwheel.storage.keys import shard_key
from tickwheel.storage.transition import OutboxTransition


def read_outbox(client: Any, namespace: str, shards: int = 1) -> list[OutboxTransition]:
    """Return all transitions, sorted by shard."""
    with client.pipeline(transaction=False) as pipeline:
        for shard in range(shards):
            pipeline.xrange(shard_key(namespace, shard, "events"))
        entries = [entry for events in pipeline.execute() for _, entry in events]
    return [transition for entry in entries for transition in transitions.decode(entry[b"e"])]


def states_of(transitions_of: list[OutboxTransition], id: str) -> list[str]:
    """Return the states of a message in order. Every version must occur exactly once."""
    transitions = [transition for transition in transitions_of if transition.id == id]
    assert [transition.version for transition in transitions] == list(range(1, len(transitions) + 1))
    return ["gone" if transition.to_state is None else transition.to_state.label for transition in transitions]
