"""A shared limit: one caller gets half of the places, and each next caller half of those that are left."""

import pytest

from tickwheel import LimitExceeded
from tickwheel.service.call_limits import peer_address
from tickwheel.service.fair_limit import FairLimit

pytestmark = pytest.mark.unit


def take_all(limit: FairLimit, caller: str) -> int:
    """Take as much as the caller may, and return the number."""
    taken = 0
    while True:
        try:
            limit.take(caller)
        except LimitExceeded:
            return taken
        taken += 1


def test_one_caller_gets_half_of_the_places() -> None:
    assert take_all(FairLimit(12_000, "calls"), "token 'a'") == 6_000


def test_each_next_caller_gets_half_of_the_places_that_are_left() -> None:
    limit = FairLimit(12_000, "calls")
    assert [take_all(limit, f"token {n}") for n in range(5)] == [6_000, 3_000, 1_500, 750, 375]


def test_a_place_that_is_given_back_can_be_taken_again() -> None:
    limit = FairLimit(4, "calls")
    assert take_all(limit, "a") == 2
    limit.put_back("a")
    with limit.hold("a"), pytest.raises(LimitExceeded, match="a has 2 calls, and a caller may have at most"):
        limit.take("a")
    assert (limit.total, take_all(limit, "a")) == (1, 1)


def test_a_waiting_call_is_not_counted_as_a_call_of_its_caller_but_in_the_total() -> None:
    limit = FairLimit(6, "calls")
    limit.take("a")
    with limit.lend("a"):
        assert (limit.total, take_all(limit, "a"), take_all(limit, "b")) == (1, 2, 1)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.1.2.3:50000", "10.1.2.3"),
        ("ipv6:%5B2001:db8:1:2:3:4:5:6%5D:50000", "2001:db8:1:2::/64"),
        ("ipv6:[::1]:50000", "::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:50000", "fe80::/64"),
        ("ipv6:[::ffff:10.1.2.3]:50000", "10.1.2.3"),
        ("unix:/run/tickwheel.sock", "unix"),
        ("unknown", "unknown"),
    ],
)
def test_a_peer_is_an_address_without_its_port_and_for_ipv6_a_network(peer: str, address: str) -> None:
    assert peer_address(peer) == address
