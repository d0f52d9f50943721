"""The asyncio client has the same names, parameters and defaults as the blocking client; its methods are awaited."""

import inspect
from typing import Any

import pytest

from tickwheel import aio, client

pytestmark = pytest.mark.unit

PAIRS = [(getattr(client, name), getattr(aio, name)) for name in ("Tickwheel", "Queue", "Message")]
# A constructor cannot await, so `open` connects the client.
ONLY_ASYNCIO = {"open"}
NEVER_SENDS = {"queue", "json"}


def methods(of: type) -> dict[str, Any]:
    """Return the public methods of a class."""
    return {name: method for name, method in inspect.getmembers(of, inspect.isfunction) if not name.startswith("_")}


def parameters(method: Any) -> list[tuple[str, Any, Any]]:
    return [
        (parameter.name, parameter.kind, parameter.default)
        for parameter in inspect.signature(method).parameters.values()
    ]


@pytest.mark.parametrize(("blocking", "awaited"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_clients_have_the_same_methods(blocking: type, awaited: type) -> None:
    assert set(methods(blocking)) == set(methods(awaited)) - ONLY_ASYNCIO


@pytest.mark.parametrize(("blocking", "awaited"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_clients_take_the_same_parameters_with_the_same_defaults(blocking: type, awaited: type) -> None:
    assert parameters(awaited) == parameters(blocking)
    for name, method in methods(blocking).items():
        assert parameters(getattr(awaited, name)) == parameters(method), name


@pytest.mark.parametrize(("blocking", "awaited"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_clients_have_the_same_properties(blocking: type, awaited: type) -> None:
    def properties(of: type) -> set[str]:
        return {name for name, member in inspect.getmembers(of) if isinstance(member, property)}

    assert properties(awaited) == properties(blocking)


@pytest.mark.parametrize("awaited", [pair[1] for pair in PAIRS], ids=lambda kind: kind.__name__)
def test_every_method_of_the_asyncio_client_that_sends_must_be_awaited(awaited: type) -> None:
    for name, method in methods(awaited).items():
        waits = inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
        assert waits == (name not in NEVER_SENDS), name


@pytest.mark.parametrize(("blocking", "awaited"), PAIRS, ids=lambda kind: kind.__name__)
def test_every_method_has_a_docstring(blocking: type, awaited: type) -> None:
    for name, method in (methods(blocking) | methods(awaited)).items():
        assert method.__doc__, name
