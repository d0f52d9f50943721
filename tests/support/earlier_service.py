"""A service of an earlier version, which does not have all RPCs."""

from dataclasses import replace

import pytest

from tickwheel.rpc.methods import METHODS


def remove_rpc(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make the service answer calls of this RPC as one that does not have it."""
    method = METHODS[name]
    monkeypatch.setitem(METHODS, name, replace(method, path=f"{method.path.rpartition('/')[0]}/Unknown"))
