"""All operations in any order against the model: plain and exclusive queues, one shard and four."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.integration.service_thread import ServiceThread
from tests.property.clock_step_machine import ClockStepMachine
from tests.property.model_messages import Settings
from tests.property.mutants import Mutant, load_mutant
from tests.property.scheduler_machine import SchedulerMachine
from tests.support.soak import IN_SOAK
from tickwheel import limits
from tickwheel.driver import firing
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.property

PLAIN = Settings(max_attempts=2)
PLAIN_INDEXED = Settings(indexed=("gpu", "region"), max_attempts=2)
EXCLUSIVE = Settings(exclusive_key="customer", max_attempts=2)
EXCLUSIVE_INDEXED = Settings(exclusive_key="customer", indexed=("gpu", "region"), max_attempts=2)

NAMESPACES = {
    "plain": (1, {"work": PLAIN}),
    "exclusive": (1, {"work": EXCLUSIVE}),
    "exclusive-indexed": (1, {"work": EXCLUSIVE_INDEXED}),
    "plain-4-shards": (4, {"work": PLAIN_INDEXED}),
    "exclusive-4-shards": (4, {"work": EXCLUSIVE}),
    "two-queues": (1, {"work": PLAIN, "flights": EXCLUSIVE_INDEXED}),
}

# A slice in `make test`, all in `make soak`.
EXAMPLES, EXAMPLES_OVER_SERVICE = (20, 8) if IN_SOAK else (12, 5)
IN_CI = settings(
    max_examples=EXAMPLES, stateful_step_count=80, deadline=None, derandomize=True, database=None, print_blob=True,
    suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
)  # fmt: skip


# A group has the messages of one exclusive value that share a pair. While the value is leased, the scripts remove
# (park) its groups from the index of pairs, up to a maximum number. With this low maximum, some groups stay there.
FEW_PARKED = Mutant(
    "few are parked", "_ready_indexes", "PARKED_MAX_ON_ADD, PARKED_MAX = 16, 64", "PARKED_MAX_ON_ADD, PARKED_MAX = 1, 2"
)


def machine(
    server: PrivateServer, namespace: str, base: type[SchedulerMachine] = SchedulerMachine, **more: Any
) -> type[SchedulerMachine]:
    """Return the machine of all operations for one kind of namespace."""
    shards, queues = NAMESPACES[namespace]
    return type("Machine", (base,), {"server": server, "shards": shards, "queues": queues} | more)


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_every_operation_agrees_with_the_model(tickwheel_server: PrivateServer, namespace: str) -> None:
    run_state_machine_as_test(machine(tickwheel_server, namespace), settings=IN_CI)


def test_every_operation_agrees_with_the_model_while_the_clock_steps(tickwheel_server: PrivateServer) -> None:
    run_state_machine_as_test(machine(tickwheel_server, "plain", ClockStepMachine), settings=IN_CI)


@pytest.mark.parametrize("namespace", ["exclusive", "plain-4-shards"])
def test_operations_over_the_service_and_on_the_server_agree_with_the_model(
    tickwheel_server: PrivateServer, service: ServiceThread, namespace: str
) -> None:
    few = settings(IN_CI, max_examples=EXAMPLES_OVER_SERVICE)
    run_state_machine_as_test(machine(tickwheel_server, namespace, service=service.url), settings=few)


@pytest.fixture
def smallest_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Limit calls to three index entries, and apply FEW_PARKED."""
    monkeypatch.setattr(limits, "CALL_ENTRIES", 3)
    monkeypatch.setattr(firing, "CALL_ENTRIES", 3)
    with load_mutant(FEW_PARKED, tmp_path):
        yield


@pytest.mark.usefixtures("smallest_steps")
@pytest.mark.parametrize("namespace", ["plain", "exclusive"])
def test_every_operation_agrees_with_the_model_in_the_smallest_steps(
    tickwheel_server: PrivateServer, namespace: str
) -> None:
    run_state_machine_as_test(machine(tickwheel_server, namespace, most_by_request=1), settings=IN_CI)


FOR_LONG = settings(IN_CI, max_examples=500 * int(os.environ.get("TICKWHEEL_SOAK", "1")), derandomize=False)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_every_operation_agrees_with_the_model_in_a_long_run(tickwheel_server: PrivateServer, namespace: str) -> None:
    run_state_machine_as_test(machine(tickwheel_server, namespace), settings=FOR_LONG)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.usefixtures("smallest_steps")
@pytest.mark.parametrize("namespace", ["plain", "exclusive"])
def test_every_operation_agrees_with_the_model_in_the_smallest_steps_in_a_long_run(
    tickwheel_server: PrivateServer, namespace: str
) -> None:
    run_state_machine_as_test(machine(tickwheel_server, namespace, most_by_request=1), settings=FOR_LONG)
