"""The forms of durations, times, pairs and JSON lines on the command line, and the errors for invalid ones."""

from datetime import UTC, datetime, timedelta

import pytest

from tickwheel import InvalidArgument
from tickwheel.cli.json_lines import LineError, lines, parse
from tickwheel.cli.parameter_types import deadline, delay, format_duration, moment, pairs, parse_duration, token

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15m", timedelta(minutes=15)),
        ("30s", timedelta(seconds=30)),
        ("2h30m", timedelta(hours=2, minutes=30)),
        ("250ms", timedelta(milliseconds=250)),
        ("1.5s", timedelta(seconds=1.5)),
        ("40d", timedelta(days=40)),
        ("1d2h3m4s5ms", timedelta(days=1, hours=2, minutes=3, seconds=4, milliseconds=5)),
        ("0s", timedelta()),
    ],
)
def test_a_duration_has_units(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text", ["", "15", "m", "-5m", "15 m", "15x", "1h-5m", "1e3s", "nan", "９m", "15m\n", "9" * 400 + "d"]
)
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["6y", "-5s"])
def test_an_invalid_delay_names_the_units_and_the_longest_delay(text: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        delay(text)
    assert str(error.value) == (
        "a duration is written like 15m, 30s, 2h30m, 250ms or 40d, in the units d, h, m, s and ms and without a sign,"
        f" not '{text}'; the longest delay is 1825d (5 years)"
    )


@pytest.mark.parametrize("text", ["15m", "2h30m", "250ms", "40d", "1d2h3m4s5ms", "0s"])
def test_a_printed_duration_can_be_read(text: str) -> None:
    assert format_duration(parse_duration(text) // timedelta(milliseconds=1)) == text


@pytest.mark.parametrize("text", ["2026-05-17T18:00:00+02:00", "2026-05-17T16:00:00Z", "2026-05-17 16:00+00:00"])
def test_a_time_with_an_offset_keeps_the_offset(text: str) -> None:
    assert moment(text) == datetime(2026, 5, 17, 16, tzinfo=UTC)


def test_a_time_without_an_offset_is_local() -> None:
    assert moment("2026-05-17T18:00:00") == datetime(2026, 5, 17, 18).astimezone()


@pytest.mark.parametrize("text", ["", "tomorrow", "18:00", "2026-13-01", "0001-01-01T00:00:00+23:59:59"])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a time: write 2026-05-17T18:00:00"):
        moment(text)


def test_a_deadline_is_a_duration_or_a_time() -> None:
    assert deadline("15m") == timedelta(minutes=15)
    assert deadline("-10d") == timedelta(days=-10)
    assert deadline("2026-05-17T16:00:00Z") == datetime(2026, 5, 17, 16, tzinfo=UTC)


def test_a_pair_is_split_at_its_first_equals_sign() -> None:
    assert pairs(["a=1", "b=2=3", "c="]) == {"a": "1", "b": "2=3", "c": ""}


@pytest.mark.parametrize("texts", [["a"], ["=1"], ["a=1", "a=2"]])
def test_an_invalid_pair_is_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidArgument, match=r"a pair is written key=value|is set twice"):
        pairs(texts)


def test_a_token_is_hexadecimal() -> None:
    assert token("00Ff" * 8) == b"\x00\xff" * 8
    with pytest.raises(InvalidArgument, match="a token is 32 hexadecimal digits"):
        token("xyz")


def test_a_json_line_has_the_fields_of_a_new_message() -> None:
    message = parse(
        b'{"payload": "h\xc3\xa9", "id": "m1", "delay": "15m", "deadline": "30s", "metadata": {"a": "1"},'
        b' "lease": "2m", "max_attempts": 3}'
    )
    assert (message.payload, message.id, message.delay) == ("hé".encode(), "m1", timedelta(minutes=15))
    assert (message.deadline, message.metadata) == (timedelta(seconds=30), {"a": "1"})
    assert (message.lease, message.max_attempts) == (timedelta(minutes=2), 3)


def test_a_json_line_may_hold_any_bytes_in_base64() -> None:
    assert parse(b'{"payload_base64": "AP8="}').payload == b"\x00\xff"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"id": "a", "delay": "1s", "id": "b"}', "'id' is given twice"),
        (b'{"metadata": {"a": "1", "a": "2"}}', "'a' is given twice"),
        (b"[1]", "must hold a JSON object"),
        (b'{"paylod": "x"}', "a message has no setting 'paylod'"),
        (b'{"payload": 1}', "payload must be a string"),
        (b'{"payload": "x", "payload_base64": "eA=="}', "not both"),
        (b'{"payload_base64": "!"}', "payload_base64 is not base64"),
        (b'{"payload_base64": 7}', "payload_base64 is not base64"),
        (b'{"payload": "\\ud800"}', "payload must be valid Unicode text"),
        (b'{"delay": 15}', "a duration is written like"),
        (b'{"delay": "15"}', "a duration is written like"),
        (b'{"delay": "6y"}', "the longest delay is 1825d"),
        (b'{"due": 1700000000}', "1700000000 is not a time: write 2026-05-17T18:00:00"),
    ],
)
def test_an_invalid_json_line_is_reported_with_its_error_and_position(line: bytes, reason: str) -> None:
    with pytest.raises(LineError, match=f"line 3: .*{reason}"):
        list(lines([b"{}", b"", line]))


def test_messages_without_an_id_get_an_id_so_that_a_batch_may_be_sent_again() -> None:
    first, second = (line.message.id for line in lines([b"{}\n", b"{}\n"]))
    assert first
    assert second
    assert first != second
