"""Errors over gRPC: the client raises the error that the service raised."""

from typing import Any

import pytest

from tickwheel import errors
from tickwheel.errors import TickwheelError
from tickwheel.rpc.status import (
    DETAILS,
    DOMAIN,
    error_from_proto,
    error_from_status,
    error_to_proto,
    error_to_status,
    reason,
)

pytestmark = pytest.mark.unit

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, TickwheelError) and kind is not errors.Fenced
]


class Failed:
    """A call that ended with a status."""

    def __init__(self, *metadata: tuple[str, Any]) -> None:
        self._metadata = metadata

    def trailing_metadata(self) -> Any:
        return self._metadata


def roundtrip(error: TickwheelError) -> TickwheelError | None:
    return error_from_status(Failed(("other", "x"), (DETAILS, error_to_status(error).SerializeToString())))


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_the_conversion_to_a_status(kind: type[TickwheelError]) -> None:
    error = roundtrip(kind("what was wrong"))
    assert type(error) is kind
    assert str(error) == "what was wrong"


def test_attributes_survive_the_conversion_to_a_status() -> None:
    transition = roundtrip(errors.InvalidTransition("no", "errored"))
    assert isinstance(transition, errors.InvalidTransition)
    assert transition.state == "errored"
    conflict = roundtrip(errors.QueueConfigConflict("differs; do this", advice="do this"))
    assert isinstance(conflict, errors.QueueConfigConflict)
    assert (str(conflict), conflict.advice) == ("differs; do this", "do this")
    full = roundtrip(errors.OutboxFull("no", 17, 16))
    assert isinstance(full, errors.OutboxFull)
    assert (full.size, full.limit) == (17, 16)
    for happened in (True, False):
        unavailable = roundtrip(errors.Unavailable("no", may_have_happened=happened))
        assert isinstance(unavailable, errors.Unavailable)
        assert unavailable.may_have_happened is happened


@pytest.mark.parametrize("kind", [errors.IdConflict, errors.MessageNotFound, errors.LeaseLost])
def test_the_refusal_of_one_message_survives_the_conversion(kind: type[TickwheelError]) -> None:
    error = error_from_proto(error_to_proto(kind("what was wrong")))
    assert type(error) is kind
    assert str(error) == "what was wrong"


def test_a_refusal_contains_the_state_that_caused_it() -> None:
    error = error_from_proto(error_to_proto(errors.InvalidTransition("no", "completed")))
    assert isinstance(error, errors.InvalidTransition)
    assert error.state == "completed"


def test_a_status_of_another_service_is_not_converted() -> None:
    assert error_from_status(Failed()) is None
    assert error_from_status(Failed(("grpc-message", "away"))) is None
    other = error_to_status(errors.LeaseLost("no"))
    other.ClearField("details")
    assert error_from_status(Failed((DETAILS, other.SerializeToString()))) is None


def test_reasons_are_upper_case_names() -> None:
    assert DOMAIN == "tickwheel"
    assert reason(errors.QueueConfigConflict) == "QUEUE_CONFIG_CONFLICT"


def test_a_long_text_is_cut_and_says_so_and_keeps_its_end() -> None:
    error = errors.QueueConfigConflict(f"{'é' * 100_000}; pass update=True", advice="pass update=True")
    status = error_to_status(error)
    assert status.ByteSize() < 2_000
    received = roundtrip(error)
    assert isinstance(received, errors.QueueConfigConflict)
    assert received.advice == "pass update=True"
    assert "é [... 198,518 bytes are cut here ...] é" in str(received)
    assert str(received).endswith("; pass update=True")
    assert str(received).startswith("é" * 375)


def test_a_long_attribute_and_the_text_of_a_refused_message_are_cut() -> None:
    assert error_to_status(errors.QueueConfigConflict("", advice="x" * 100_000)).ByteSize() < 1_000
    assert error_to_proto(errors.InvalidArgument("x" * 100_000)).ByteSize() < 2_000


def test_a_text_of_usual_length_is_unchanged() -> None:
    assert error_to_status(errors.InvalidArgument("x" * 1_500)).message == "x" * 1_500
