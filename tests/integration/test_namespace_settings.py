"""Settings of a namespace: short named texts that every program sees at its next read."""

from collections.abc import Callable
from typing import Any

import pytest

from tickwheel import InvalidArgument, Tickwheel, TickwheelError
from tickwheel.storage.keys import settings_key

pytestmark = pytest.mark.integration

Dump = Callable[[], dict[str, Any]]


def test_every_client_reads_the_value_that_was_set_last(tw: Tickwheel, direct_client: Tickwheel) -> None:
    assert (tw.setting("mail.sender"), tw.settings()) == (None, {})
    tw.set_setting("mail.sender", "shop@example.com")
    assert direct_client.setting("mail.sender") == "shop@example.com"
    direct_client.set_setting("mail.sender", "orders@example.com")
    assert tw.setting("mail.sender") == "orders@example.com"


def test_settings_are_listed_by_name(tw: Tickwheel) -> None:
    for name in ("route:mail.send", "b-2", "a_1"):
        tw.set_setting(name, f"of {name}")
    assert list(tw.settings().items()) == [(name, f"of {name}") for name in ("a_1", "b-2", "route:mail.send")]


def test_none_removes_a_setting_and_may_be_repeated(tw: Tickwheel, dump: Dump) -> None:
    before = dump()
    tw.set_setting("a", "b")
    tw.set_setting("a", None)
    tw.set_setting("a", None)
    assert (tw.setting("a"), tw.settings()) == (None, {})
    assert dump() == before


@pytest.mark.parametrize("value", ["", "x" * 1024, "é" * 512, '{"to": "tickwheel"}', "nul \0 and line\n"])
def test_a_value_is_a_text_of_up_to_1_kib(tw: Tickwheel, value: str) -> None:
    tw.set_setting("n" * 128, value)
    assert tw.setting("n" * 128) == value
    assert tw.settings() == {"n" * 128: value}


@pytest.mark.parametrize("name", ["", "n" * 129, "with space", "é", "a{b}", "a\n", None, b"a", 3])
def test_an_invalid_name_of_a_setting_is_refused(tw: Tickwheel, name: Any) -> None:
    with pytest.raises(InvalidArgument, match="a setting's name must have 1 to 128 letters"):
        tw.setting(name)
    with pytest.raises(InvalidArgument, match="a setting's name must have"):
        tw.set_setting(name, "value")


@pytest.mark.parametrize("value", ["x" * 1025, "é" * 513, "\ud800", b"bytes", 3, {"a": "b"}])
def test_an_invalid_value_of_a_setting_is_refused(tw: Tickwheel, value: Any) -> None:
    with pytest.raises(InvalidArgument, match="a setting's value must be"):
        tw.set_setting("a", value)
    assert tw.setting("a") is None


def test_a_namespace_has_at_most_1000_settings_and_existing_settings_can_still_be_changed(
    tw: Tickwheel, direct_client: Tickwheel, server: Any
) -> None:
    server.hset(settings_key(direct_client._context.namespace), mapping={f"s{n}": "v" for n in range(1_000)})
    with pytest.raises(TickwheelError) as refusal:
        tw.set_setting("another", "v")
    assert str(refusal.value) == "a namespace has at most 1000 settings: remove one of them"
    tw.set_setting("s7", "changed")
    tw.set_setting("s8", None)
    tw.set_setting("another", "v")
    assert (tw.setting("s7"), tw.setting("another"), len(tw.settings())) == ("changed", "v", 1_000)
