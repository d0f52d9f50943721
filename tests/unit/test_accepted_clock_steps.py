"""An event process stores the clock steps that an operator has accepted. Tests set both clocks, so nothing waits."""

import pytest

from tickwheel.driver.server_clock import ServerClock

pytestmark = pytest.mark.unit

BASE = 1_700_000_000_000
HOUR = 3_600_000
LIMIT = 1_000


class Host:
    """A host that observes the clock of a server; the server's clock is ``ahead`` ms ahead of the host's clock."""

    def __init__(self, ahead: int = 0, offset: int = 0) -> None:
        self.at = 0.0
        self.ahead = ahead
        # How far the clocks of host and server are ahead of the monotonic clock.
        self.drift = 0
        self.clock = ServerClock(LIMIT, monotonic=lambda: self.at, wall=lambda: BASE + self.at + self.drift)
        self.clock.on_reply(0, 0)
        self.clock.on_claimed(BASE + ahead, None, offset)

    def observe(self, ahead: int, delay: float = 0) -> None:
        """Advance by ten seconds, and receive the server's time in a reply that took ``delay`` ms."""
        self.at += 10_000
        self.clock.on_reply(self.at - delay, self.at)
        self.clock.observe(int(BASE + self.at - delay) + ahead)

    def accept(self) -> None:
        self.clock.accept()
        self.observe(self.ahead)


def accepted() -> Host:
    """Return a host whose operator has accepted a step of an hour, and whose shard has stored the step."""
    host = Host(ahead=HOUR)
    host.accept()
    assert host.clock.unsaved_offset == HOUR
    host.clock.on_claimed(int(BASE + host.at) + HOUR, None, HOUR)
    return host


def test_without_an_accepted_step_nothing_is_stored() -> None:
    host = Host()
    host.observe(0)
    host.accept()
    assert host.clock.unsaved_offset is None


def test_an_accepted_step_is_stored_once() -> None:
    host = accepted()
    assert not host.clock.guard.is_holding
    assert host.clock.unsaved_offset is None


@pytest.mark.parametrize(("ahead", "is_holding"), [(HOUR, False), (HOUR + LIMIT, False), (HOUR + LIMIT + 1, True)])
def test_the_next_process_trusts_an_accepted_step_up_to_the_limit(ahead: int, is_holding: bool) -> None:
    assert Host(ahead, offset=HOUR).clock.guard.is_holding == is_holding


def test_an_accepted_step_follows_the_drift_of_the_clocks() -> None:
    host = accepted()
    host.observe(HOUR + 400)
    assert host.clock.unsaved_offset is None
    host.observe(HOUR + 501)
    assert host.clock.unsaved_offset == HOUR + 501


@pytest.mark.parametrize("ahead", [LIMIT, 0, -HOUR])
def test_an_accepted_step_is_forgotten_when_the_clocks_agree_again(ahead: int) -> None:
    host = accepted()
    host.observe(ahead)
    assert host.clock.unsaved_offset == 0


def test_a_slow_reply_forgets_no_accepted_step() -> None:
    host = accepted()
    host.observe(HOUR, delay=HOUR)
    assert host.clock.unsaved_offset is None


def test_a_held_step_does_not_change_the_accepted_step() -> None:
    host = accepted()
    host.observe(2 * HOUR)
    assert host.clock.guard.is_holding
    assert host.clock.unsaved_offset is None


def test_an_accepted_step_is_written_again_to_a_shard_that_lost_it() -> None:
    host = accepted()
    # A failover to a server that does not have the accepted step.
    host.clock.on_claimed(int(BASE + host.at) + HOUR, None, 0)
    assert host.clock.unsaved_offset == HOUR


@pytest.mark.parametrize(
    ("ahead", "is_holding"), [(HOUR, False), (HOUR + LIMIT, False), (HOUR + LIMIT + 1, True), (2_000, True)]
)
def test_a_step_accepted_on_another_shard_is_accepted_when_this_shard_observes_it(ahead: int, is_holding: bool) -> None:
    host = Host()
    host.observe(0)
    host.clock.accept_similar_steps([HOUR])
    host.observe(ahead)
    assert host.clock.guard.is_holding == is_holding
    assert host.clock.unsaved_offset == (None if is_holding else ahead)


def test_an_accepted_step_counts_until_every_idle_shard_has_been_checked() -> None:
    host = Host()
    host.clock.accept_similar_steps([HOUR])
    for _ in range(13):
        host.observe(0)
    host.observe(HOUR)
    assert host.clock.guard.is_holding


def test_without_an_accepted_step_no_step_counts_as_accepted() -> None:
    host = Host()
    host.clock.accept_similar_steps([])
    host.observe(HOUR)
    assert host.clock.guard.is_holding


def test_a_process_that_leads_again_trusts_a_step_that_was_accepted_at_another_leader() -> None:
    host = Host()
    host.clock.reset()
    host.clock.on_claimed(int(BASE + host.at) + HOUR, None, HOUR)
    assert not host.clock.guard.is_holding
    assert host.clock.unsaved_offset is None


def test_a_process_that_leads_again_trusts_a_clock_that_drifted_while_the_process_did_not_lead() -> None:
    host = Host()
    host.clock.reset()
    host.drift = LIMIT + 1
    host.clock.on_claimed(BASE + host.drift, None, 0)
    assert not host.clock.guard.is_holding


def test_a_process_that_leads_again_does_not_store_a_step_that_it_accepted_in_an_earlier_leadership() -> None:
    host = Host(ahead=HOUR)
    host.accept()
    assert host.clock.unsaved_offset == HOUR
    host.clock.reset()
    assert host.clock.unsaved_offset is None


def test_a_process_that_leads_again_holds_at_a_step_that_no_operator_has_accepted() -> None:
    host = Host(ahead=HOUR)
    # The leadership ends before the next probe.
    host.clock.accept()
    host.clock.reset()
    assert not host.clock.guard.is_holding
    host.clock.on_claimed(BASE + HOUR, None, 0)
    assert host.clock.guard.is_holding
    assert host.clock.guard.steps == 2
