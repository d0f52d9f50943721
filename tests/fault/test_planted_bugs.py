"""The fault harness notices planted bugs: each test damages the data of a running system on purpose."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.fault.harness import faults
from tests.fault.harness.load import EXCLUSIVE
from tests.fault.harness.plan import Fault
from tests.fault.harness.rows import plan
from tests.fault.harness.run import run
from tests.fault.harness.shared_services import SharedServices
from tests.fault.harness.system_under_test import NAMESPACE, SystemUnderTest
from tests.support.wait_until import eventually
from tickwheel.storage.keys import queue_key, shard_key

pytestmark = pytest.mark.fault

Sabotage = Callable[[Any], None]


def lose_a_message(client: Any) -> None:
    """Delete a message, as a script that is not atomic could."""
    key = shard_key(NAMESPACE, 0, "messages")

    def is_lost() -> bool:
        id = client.hrandfield(key)
        return id is not None and client.hdel(key, id) == 1

    eventually(is_lost, "a message existed and is deleted")


def unlock_values(client: Any) -> None:
    """Unlock exclusive values repeatedly, as a script that unlocks them too early would."""
    key = queue_key(NAMESPACE, 0, EXCLUSIVE, "locks")
    for _ in range(10):
        eventually(lambda: client.delete(key) == 1, "a value was locked and is unlocked")


def keep_a_value_locked(client: Any) -> None:
    """Keep a value locked, as a script that completes a message and does not unlock its value would."""
    client.hset(queue_key(NAMESPACE, 0, EXCLUSIVE, "locks"), b"\x00\x04none", b"Rended")


PLANTED = [(lose_a_message, "I1"), (unlock_values, "I3"), (keep_a_value_locked, "I6")]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("sabotage", "invariant"), PLANTED)
def test_the_fault_harness_finds_a_planted_bug(
    sabotage: Sabotage, invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def planted(system: SystemUnderTest, fault: Fault) -> Iterator[Callable[[], str]]:
        with system.place.client() as client:
            sabotage(client)
        yield lambda: "done"

    monkeypatch.setitem(faults.KINDS, "planted", planted)
    monkeypatch.setattr("tests.fault.harness.run.ENDS_S", 3.0)
    sound = plan("F1L", 1, 3.0)
    with SharedServices() as shared:
        # Few values, so that many messages share a value.
        outcome = run(replace(sound, load=replace(sound.load, values=3), faults=(Fault("planted", 2.0),)), shared)
    assert invariant in {violation.invariant for violation in outcome.violations}
