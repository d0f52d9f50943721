"""The demo from end to end: a day compressed to seconds, with a verdict of its own, that leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tickwheel import Tickwheel
from tickwheel.cli.app import app
from tickwheel.demo import simulation
from tickwheel.demo.checks import Verdict, check_day
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.examples

TICKWHEEL = (sys.executable, "-m", "tickwheel")
HEAD = "carrier,flight,tailnum,origin,dest,sched_dep_time,dep_time,sched_arr_time,arr_time,air_time,distance\n"
Demo = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder for temporary files, with a name short enough for a socket address."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def demo(scratch: Path) -> Demo:
    """Run the demo with its own folder for temporary files, which must be empty afterwards."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TICKWHEEL_")}

    def run(*args: object, code: int = 0) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [*TICKWHEEL, "demo", *map(str, args)],
            env=environment | {"TMPDIR": str(scratch)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        assert list(scratch.iterdir()) == []
        return done

    return run


def verdict(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture
def small_day(tmp_path: Path) -> Path:
    """One aircraft that is needed in two places at once, a cancelled flight, and a flight without a tail number."""
    path = tmp_path / "small.csv"
    path.write_text(
        HEAD
        + "UA,1,N1,EWR,IAH,600,601,900,,120,1400\n"
        + "UA,2,N1,EWR,IAH,610,611,910,,120,1400\n"
        + "UA,3,N1,EWR,IAH,620,,920,,,1400\n"
        + "UA,4,,EWR,IAH,630,631,930,,90,1400\n"
        + "UA,5,N2,EWR,IAH,620,621,920,,120,1400\n"
    )
    return path


def test_the_demo_passes_its_day(demo: Demo) -> None:
    """An idle machine also passes shorter days; on a loaded one, cancellations would then be late."""
    report = verdict(demo("--seconds", 25, "--json"))
    assert report["passed"]
    assert (report["flights"], report["completed"], report["cancelled"]) == (930, 458, 472)
    assert all(check["holds"] for check in report["checks"])
    assert report["taken_late"]["p99"] >= report["taken_late"]["p50"] >= 0


def test_an_aircraft_needed_by_two_flights_at_once_flies_them_one_after_the_other(demo: Demo, small_day: Path) -> None:
    report = verdict(demo("--file", small_day, "--seconds", 3, "--workers", 2, "--json"))
    assert report["passed"]
    assert (report["flights"], report["completed"], report["cancelled"]) == (5, 4, 1)
    # The second flight of the aircraft waits for the first to land: 110 of 150 minutes, which last three seconds.
    assert report["taken_late"]["worst"] >= 3000 * 110 // 150


def test_the_exit_code_reports_a_failed_day(
    small_day: Path, tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_the_last_landing(departures: Any, history: Any, landings: Any, refused: Any) -> Verdict:
        return check_day(departures, history, landings[:-1], refused)

    monkeypatch.setattr(simulation, "check_day", without_the_last_landing)
    arguments = ["demo", "--file", str(small_day), "--seconds", "3", "--workers", "1", "--url", tickwheel_server.url]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1, f"{done.stdout}\n{done.stderr}"
    assert "not all checks of the demo passed" in done.stderr


def test_the_demo_prints_plain_lines_without_a_terminal(demo: Demo, small_day: Path) -> None:
    printed = demo("--file", small_day, "--seconds", 3, "--workers", 1).stdout
    assert "\x1b" not in printed
    assert "is exclusive by 'aircraft': every message needs this key in its metadata" in printed
    assert "scheduled" in printed
    assert printed.rstrip().endswith("all 8 checks hold")


def test_the_demo_deletes_its_namespace_on_a_server_by_url(
    demo: Demo, small_day: Path, tickwheel_server: PrivateServer
) -> None:
    demo("--file", small_day, "--seconds", 3, "--workers", 1, "--url", tickwheel_server.url, "--timeout", "20s")
    with tickwheel_server.client() as client:
        assert list(client.scan_iter(match="demo-*")) == []


def test_the_demo_creates_and_deletes_the_namespace_of_the_option(
    demo: Demo, small_day: Path, tickwheel_server: PrivateServer, namespace: str
) -> None:
    where = ("--url", tickwheel_server.url, "--namespace", namespace)
    demo("--file", small_day, "--seconds", 3, "--workers", 1, *where)
    with tickwheel_server.client() as client:
        assert list(client.scan_iter(match=f"{namespace}:*")) == []


def test_a_namespace_that_exists_without_queues_is_refused_and_stays(
    demo: Demo, tickwheel_server: PrivateServer, namespace: str
) -> None:
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=False) as tickwheel:
        tickwheel.set_setting("mail.sender", "orders@example.com")
    done = demo("--url", tickwheel_server.url, "--namespace", namespace, code=2)
    assert f"namespace '{namespace}' exists, and the demo creates a namespace" in done.stderr
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=False, existing=True) as tickwheel:
        assert tickwheel.setting("mail.sender") == "orders@example.com"


def test_the_demo_and_its_workers_use_the_timeout(demo: Demo, scratch: Path) -> None:
    url = "redis://127.0.0.1:1"
    done = demo("--url", url, "--timeout", "0.3s", code=3)
    assert done.stderr.startswith(f"tickwheel: no answer from {url} in 0.3 s"), done.stderr
    arguments = [
        "--worker",
        "w",
        "--logbook",
        str(scratch / "w"),
        "--namespace",
        "n",
        "--crew",
        "q=1",
        "--timeout",
        "0.3",
    ]
    worker = subprocess.run(
        [sys.executable, "-m", "tickwheel.demo.pilots", *arguments],
        env=os.environ | {"TICKWHEEL_URL": url},
        stdin=subprocess.PIPE,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert worker.returncode == 1
    assert f"no answer from {url} in 0.3 s" in worker.stderr, worker.stderr


def test_an_error_in_a_file_names_the_line(demo: Demo, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(HEAD + "UA,1,N1,EWR,IAH,600,601,2500,,120,1400\n")
    done = demo("--file", path, code=2)
    assert done.stderr == "tickwheel: bad.csv line 2: sched_arr_time must be HHMM from 0 to 2400, not '2500'\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_behind(scratch: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [*TICKWHEEL, "demo"], env=os.environ | {"TMPDIR": str(scratch)}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "in the air" in line and line.startswith("05:"):
                break
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert list(scratch.iterdir()) == []
