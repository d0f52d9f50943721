"""An event process reports the loop of a shard that hangs in its own code, and not a loop that waits."""

from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.support.in_thread import in_thread
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.driver import run_steps
from tickwheel.election.lease_options import LeaseOptions
from tickwheel.event_process import shard_loop
from tickwheel.event_process.assembly import ElectionOptions, open_event_process
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("by_lease", [False, True], ids=["lock file", "lease"])
def test_a_loop_that_hangs_is_reported_until_it_comes_round(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_lease: bool
) -> None:
    must_hang, may_continue = Event(), Event()
    next_command = run_steps.next_command

    def hang_after_command(steps: Any, execute: Any, command: Any) -> Any:
        following = next_command(steps, execute, command)
        if must_hang.is_set():
            may_continue.wait(60)
        return following

    monkeypatch.setattr(shard_loop, "next_command", hang_after_command)
    election: ElectionOptions = LeaseOptions() if by_lease else tmp_path / "lock"
    url = tickwheel_server.url
    with open_event_process(url, namespace, election) as process, in_thread(process, stop_s=20):
        eventually(process.led_epochs, "the process drives")
        eventually(lambda: process.hanging_shards(0.0) == [], "the loop waits for its next timer")
        try:
            must_hang.set()
            with Tickwheel(url, namespace=namespace) as client:
                client.queue("jobs").enqueue()
                # The loop hears of a timer.
                client.queue("jobs").enqueue(delay=3_600)
            eventually(lambda: process.hanging_shards(100.0) == [0], "the loop hangs")
        finally:
            may_continue.set()
        eventually(lambda: process.hanging_shards(100.0) == [], "the loop has come round")
