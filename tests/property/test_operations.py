"""All operations in any order against the model: plain and exclusive queues, one shard and four."""

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.model import Settings
from tests.property.scheduler_machine import SchedulerMachine
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.property

PLAIN = Settings()
PLAIN_INDEXED = Settings(indexed=("gpu", "region"))
EXCLUSIVE = Settings(exclusive_key="customer")
EXCLUSIVE_INDEXED = Settings(exclusive_key="customer", indexed=("gpu", "region"))

NAMESPACES = {
    "plain": (1, {"work": PLAIN}),
    "exclusive": (1, {"work": EXCLUSIVE}),
    "exclusive-indexed": (1, {"work": EXCLUSIVE_INDEXED}),
    "plain-4-shards": (4, {"work": PLAIN_INDEXED}),
    "exclusive-4-shards": (4, {"work": EXCLUSIVE}),
    "two-queues": (1, {"work": PLAIN, "flights": EXCLUSIVE_INDEXED}),
}

IN_CI = settings(
    max_examples=20, stateful_step_count=60, deadline=None, derandomize=True, database=None, print_blob=True,
    suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink),
)  # fmt: skip


def _machine(server: PrivateServer, namespace: str) -> type[SchedulerMachine]:
    shards, queues = NAMESPACES[namespace]
    return type("Machine", (SchedulerMachine,), {"server": server, "shards": shards, "queues": queues})


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_every_operation_does_what_the_model_says(tickwheel_server: PrivateServer, namespace: str) -> None:
    run_state_machine_as_test(_machine(tickwheel_server, namespace), settings=IN_CI)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_every_operation_does_what_the_model_says_for_long(tickwheel_server: PrivateServer, namespace: str) -> None:
    long = settings(IN_CI, max_examples=500 * int(os.environ.get("TICKWHEEL_SOAK", "1")), derandomize=False)
    run_state_machine_as_test(_machine(tickwheel_server, namespace), settings=long)
