"""What an event process keeps of a step that an operator has accepted. Both clocks are arguments, so nothing waits."""

import pytest

from tickwheel.driver.server_clock import ServerClock

pytestmark = pytest.mark.unit

BASE = 1_700_000_000_000
HOUR = 3_600_000
LIMIT = 1_000


class Host:
    """A host and a server that it looks at; ``ahead`` is by how much the server's clock is."""

    def __init__(self, ahead: int = 0, kept: int = 0) -> None:
        self.at = 0.0
        self.ahead = ahead
        self.clock = ServerClock(LIMIT, monotonic=lambda: self.at, wall=lambda: BASE + self.at)
        self.clock.on_reply(0, 0)
        self.clock.on_claimed(BASE + ahead, None, kept)

    def look(self, ahead: int, took: float = 0) -> None:
        """Ten seconds later: what the server shows, in a reply that was so long under way."""
        self.at += 10_000
        self.clock.on_reply(self.at - took, self.at)
        self.clock.observe(int(BASE + self.at - took) + ahead)

    def accept(self) -> None:
        self.clock.accept()
        self.look(self.ahead)


def accepted() -> Host:
    """A host whose operator has accepted an hour, and whose shard keeps it."""
    host = Host(ahead=HOUR)
    host.accept()
    assert host.clock.unsaved_offset == HOUR
    host.clock.on_claimed(int(BASE + host.at) + HOUR, None, HOUR)
    return host


def test_without_an_accepted_step_nothing_is_stored() -> None:
    host = Host()
    host.look(0)
    host.accept()
    assert host.clock.unsaved_offset is None


def test_an_accepted_step_is_stored_once() -> None:
    host = accepted()
    assert not host.clock.guard.is_holding
    assert host.clock.unsaved_offset is None


@pytest.mark.parametrize(("ahead", "held"), [(HOUR, False), (HOUR + LIMIT, False), (HOUR + LIMIT + 1, True)])
def test_the_next_process_trusts_an_accepted_step_up_to_the_limit(ahead: int, held: bool) -> None:
    assert Host(ahead, kept=HOUR).clock.guard.is_holding == held


def test_an_accepted_step_follows_the_drift_of_the_clocks() -> None:
    host = accepted()
    host.look(HOUR + 400)
    assert host.clock.unsaved_offset is None
    host.look(HOUR + 501)
    assert host.clock.unsaved_offset == HOUR + 501


@pytest.mark.parametrize("ahead", [LIMIT, 0, -HOUR])
def test_an_accepted_step_is_forgotten_when_the_clocks_agree_again(ahead: int) -> None:
    host = accepted()
    host.look(ahead)
    assert host.clock.unsaved_offset == 0


def test_a_slow_reply_forgets_no_accepted_step() -> None:
    host = accepted()
    host.look(HOUR, took=HOUR)
    assert host.clock.unsaved_offset is None


def test_a_held_step_does_not_change_the_accepted_step() -> None:
    host = accepted()
    host.look(2 * HOUR)
    assert host.clock.guard.is_holding
    assert host.clock.unsaved_offset is None


def test_an_accepted_step_is_written_again_to_a_shard_that_lost_it() -> None:
    host = accepted()
    # A failover to a server that had not heard of it.
    host.clock.on_claimed(int(BASE + host.at) + HOUR, None, 0)
    assert host.clock.unsaved_offset == HOUR


@pytest.mark.parametrize(
    ("ahead", "held"), [(HOUR, False), (HOUR + LIMIT, False), (HOUR + LIMIT + 1, True), (2_000, True)]
)
def test_a_step_accepted_on_another_shard_is_accepted_when_it_is_met(ahead: int, held: bool) -> None:
    host = Host()
    host.look(0)
    host.clock.accept_similar_steps([HOUR])
    host.look(ahead)
    assert host.clock.guard.is_holding == held
    assert host.clock.unsaved_offset == (None if held else ahead)


def test_an_accepted_step_counts_until_every_idle_shard_has_been_checked() -> None:
    host = Host()
    host.clock.accept_similar_steps([HOUR])
    for _ in range(13):
        host.look(0)
    host.look(HOUR)
    assert host.clock.guard.is_holding


def test_without_an_accepted_step_no_step_counts_as_accepted() -> None:
    host = Host()
    host.clock.accept_similar_steps([])
    host.look(HOUR)
    assert host.clock.guard.is_holding
