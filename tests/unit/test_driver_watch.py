"""Whether a namespace counts as undriven, from the signs that its shards show over time."""

from dataclasses import replace

import pytest

from tickwheel.client.driver_watch import QUIET_MS, DriverWatch, Signs, look_once
from tickwheel.operations.context import NamespaceContext
from tickwheel.plan import Reply
from tickwheel.storage.fence import pack_fence

pytestmark = pytest.mark.unit

NEVER = Signs(b"", "", b"", b"")
IDLE = Signs(pack_fence(3, 7), "lockfile", b"100", b"")
WAITING = Signs(pack_fence(3, 7), "lockfile", b"100", b"5-0")
RELEASED = Signs(pack_fence(3, 0), "lease", b"100", b"")
LED = Signs(pack_fence(3, 7), "lease", b"100", b"")


def judge(*observed: Signs) -> list[bool]:
    """Return whether the only shard is called undriven, after each of these observations."""
    watch = DriverWatch(NamespaceContext("tw"))
    return [watch.judge({0: signs}, n * QUIET_MS / 2) != "" for n, signs in enumerate(observed)]


@pytest.mark.parametrize("signs", [NEVER, WAITING, RELEASED])
def test_a_shard_whose_signs_stay_the_same_is_undriven(signs: Signs) -> None:
    assert judge(signs, signs, signs) == [False, False, True]


def test_a_program_of_last_resort_gives_a_shard_that_nobody_has_claimed_more_time() -> None:
    watch = DriverWatch(NamespaceContext("tw"), unclaimed_ms=5_000)
    for signs, quiet_ms in ((NEVER, QUIET_MS + 5_000), (RELEASED, QUIET_MS)):
        assert watch.judge({0: signs}, 0) == ""
        assert watch.judge({0: signs}, quiet_ms - 1) == ""
        assert watch.judge({0: signs}, quiet_ms) != ""


@pytest.mark.parametrize("signs", [IDLE, LED])
def test_an_idle_shard_is_not_called_undriven(signs: Signs) -> None:
    assert judge(*[signs] * 4) == [False] * 4


@pytest.mark.parametrize(
    "later",
    [replace(WAITING, fence=pack_fence(4, 1)), replace(WAITING, high=b"101"), replace(WAITING, oldest=b"6-0")],
)
def test_a_shard_whose_signs_change_is_driven(later: Signs) -> None:
    assert judge(WAITING, WAITING, later, later) == [False] * 4


def test_the_check_of_commands_that_only_read_takes_one_round_trip() -> None:
    context = NamespaceContext("shop")
    context.shards = 2
    plan = look_once(context)
    requests = next(plan).requests  # type: ignore[union-attr]
    assert [request.shard for request in requests] == [0, 0, 0, 1, 1, 1]
    idle, waits = [[IDLE.fence, b"lockfile", b"100"], []], [[IDLE.fence, b"lockfile", b"100"], [(b"5-0", [])]]
    now = [b"%d" % (QUIET_MS // 1_000 + 1), b"0"]
    with pytest.raises(StopIteration) as end:
        plan.send([Reply(value) for value in (*idle, now, *waits, now)])
    assert "drives namespace 'shop' (shards: 1 of 2)" in end.value.value


def test_the_warning_names_the_namespace_the_shards_and_the_remedy() -> None:
    context = NamespaceContext("shop")
    context.shards = 3
    watch = DriverWatch(context)
    signs = {0: IDLE, 1: RELEASED, 2: RELEASED}
    assert watch.judge(signs, 0) == ""
    assert watch.judge(signs, QUIET_MS) == (
        "no event process drives namespace 'shop' (shards: 2 of 3): delayed messages do not become deliverable, and"
        " leases do not end. Run `tickwheel events --election lease`. Workers and services with `--drive auto` drive,"
        " too, or log why they do not"
    )


def test_the_warning_about_a_new_namespace_says_when_workers_drive_it() -> None:
    watch = DriverWatch(NamespaceContext("shop"))
    assert watch.judge({0: NEVER}, 0) == ""
    assert watch.judge({0: NEVER}, QUIET_MS).endswith(
        "Run `tickwheel events`. Workers and services with `--drive auto` drive a new namespace of one Redis server,"
        " too, but only 15 s after their start"
    )
