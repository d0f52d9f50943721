"""Small complete loads against an embedded server, a server by URL, and the service; and the reports of these loads."""

import asyncio
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from services.process import Process
from tests.integration.service_thread import ServiceThread
from tests.integration.stalled_load import run_stalled_load
from tests.support.wait_until import eventually
from tests.unit.load_scenarios import erlang_c
from tickwheel import NewMessage, Tickwheel
from tickwheel.cli.app import app
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

TICKWHEEL = (sys.executable, "-m", "tickwheel")
ENDS_S = 100
JSON = ("--shards", "2", "--json")
Load = Callable[..., Result]

# A queue as in queueing theory: on average 3.2 of 5 workers are busy.
TEXTBOOK = """
length = "6s"
[[queue]]
name = "q"
arrivals = 16
run = { exponential = "200ms" }
batch = 1
[[workers]]
hosts = 1
processes = 5
"""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Run a load in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith("TICKWHEEL_"):
            monkeypatch.delenv(name)

    def run(*args: object, code: int = 0) -> Result:
        done = CliRunner().invoke(app, ["load", *map(str, args)])
        assert done.exit_code == code, f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
        return done

    return run


@pytest.fixture
def driven_namespace(tickwheel_server: PrivateServer, namespace: str) -> Iterator[str]:
    """A namespace with its own event process, which the service needs."""
    with Tickwheel(tickwheel_server.url, namespace=namespace, drive=True):
        yield namespace


def document(done: Result) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def check_all_is_done(report: dict[str, Any], minimum: int) -> None:
    """Check that every enqueued message was completed, cancelled, or ended by its failures."""
    run = report["run"]
    assert run["ended"] == "all planned work is done"
    assert run["errors"] == {}
    assert run["troubles"] == []
    assert run["counts"]["enqueued"] >= minimum
    assert run["calls"]["enqueue"]["count"] == run["counts"]["enqueued"]
    for queue in run["queues"].values():
        assert [queue["at_the_end"][state] for state in ("invisible", "pending", "running")] == [0, 0, 0]
    ended = sum(sum(queue["at_the_end"].values()) for queue in run["queues"].values())
    assert ended == run["counts"]["enqueued"]


def parts_of(pid: int) -> list[int]:
    """Return the processes of a load's producers and workers in the order of their start."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [child for child in map(int, children) if is_part(child)]


def is_part(pid: int) -> bool:
    try:
        return b"tickwheel.load.run.process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False


def test_unpaid_orders_time_out_in_a_load(load: Load) -> None:
    report = document(
        load("order-timeouts", "--start", "18h", "--length", "1h", "--scale", 0.01, "--speed-up", 1_800, *JSON)
    )
    check_all_is_done(report, 400)
    orders = report["run"]["queues"]["order-timeouts"]["at_the_end"]
    assert orders["cancelled"] > 0.85 * report["run"]["counts"]["enqueued"]
    assert orders["completed"] > 0
    # The counts cover the whole load, although only a hundredth of the load was run.
    assert [hour["hour"] for hour in report["capacity"]["hours"]] == [18]
    assert report["capacity"]["hours"][0]["workers"] > 1


def test_encodes_run_one_at_a_time_for_each_project_over_the_service(
    load: Load, real_time_service: ServiceThread, driven_namespace: str
) -> None:
    options = ["--scale", 0.03, "--start", "20h", "--length", "20m", "--speed-up", 600]
    options += ["--json"]
    where = ["--url", real_time_service.url, "--namespace", driven_namespace]
    report = document(load("media-encoding", *options, *where))
    check_all_is_done(report, 40)
    assert report["run"]["queues"]["encode"]["deadlines"] > 0
    assert "0 unfinished messages were cancelled" in report["run"]["left"]


def test_the_published_mix_runs_on_a_server_by_url_and_leaves_nothing_behind(
    load: Load, tickwheel_server: PrivateServer
) -> None:
    report = document(load("timestone", "--scale", 0.02, "--length", "6s", "--url", tickwheel_server.url, "--json"))
    check_all_is_done(report, 60)
    calls = report["run"]["calls"]
    assert calls["dequeue"]["count"] + calls["dequeue empty"]["count"] > 150
    with tickwheel_server.client() as client:
        assert list(client.scan_iter(match=f"{report['run']['namespace']}*")) == []


def test_a_recording_can_be_replayed_faster(load: Load, tmp_path: Path) -> None:
    rows = "".join(f"mail,{8 * 3600 + n},0.5\n" for n in range(120))
    (tmp_path / "monday.csv").write_text(f"queue,arrival,run seconds\n{rows}")
    done = load("monday.csv", "--speed-up", 60, "--workers", 4)
    assert "120 messages" in done.stdout
    assert re.search(r"08:00 +1\.01 ", done.stdout)
    page = (tmp_path / "load-report.html").read_text()
    assert page.count("data:image/svg+xml;base64,") >= 5
    assert not re.search(r'(src|href)="(?!data:)', page)
    report = json.loads((tmp_path / "load-report.json").read_text())
    check_all_is_done(report, 120)
    assert report["scenario"]["start_hour"] == 8


def test_measured_waits_match_erlang_c_and_the_simulator(load: Load, tmp_path: Path) -> None:
    (tmp_path / "textbook.toml").write_text(TEXTBOOK)
    report = document(load("textbook.toml", "--json"))
    check_all_is_done(report, 60)
    # Besides the work, a worker is busy with calls and with waking up late on this machine.
    late_s = report["run"]["harness"]["late"]["overrun"]["mean_ms"] / 1e3
    overheads = report["capacity"]["overheads"]
    run_s = 0.2 + late_s + (overheads["fetch_ms"] + overheads["finish_ms"]) / 1e3
    busy = 16 * run_s
    if busy > 4.5:
        pytest.skip(f"with what calls take on this machine {busy:.1f} of 5 workers are busy: no formula holds")
    enqueue_s = report["run"]["calls"]["enqueue"]["mean_ms"] / 1e3
    expected_s = erlang_c(5, busy) * run_s / (5 - busy) + enqueue_s
    # The factor covers the variance of a hundred messages; a different number of workers would change the wait more.
    assert report["run"]["queues"]["q"]["measured"]["start"]["mean_ms"] / 1e3 < 4 * expected_s + 0.02
    assert {comparison["share"] for comparison in report["capacity"]["agreement"]} == {0.5, 0.95}
    for comparison in report["capacity"]["agreement"]:
        assert abs(comparison["apart_s"]) < 0.1 + 2 * enqueue_s + comparison["simulated_s"]


def test_on_a_terminal_a_bar_shows_the_progress_and_the_report_is_separate(tmp_path: Path) -> None:
    (tmp_path / "textbook.toml").write_text(TEXTBOOK.replace("6s", "3s"))
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*TICKWHEEL, "load", "textbook.toml"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as process:
        os.close(theirs)
        shown = b""
        # Reading from a terminal whose other end is closed raises an error instead of returning an end of file.
        with suppress(OSError):
            while piece := os.read(ours, 65_536):
                shown += piece
        output = process.communicate(timeout=ENDS_S)[0]
    os.close(ours)
    assert process.returncode == 0, shown
    assert b"enqueued" in shown
    assert b"completed" in shown
    assert "\x1b" not in output
    assert "workers needed" in output


def test_the_number_of_workers_is_computed_without_a_server(load: Load, tmp_path: Path) -> None:
    (tmp_path / "textbook.toml").write_text(TEXTBOOK)
    first = document(load("textbook.toml", "--simulate-only", "--wait-target", "20ms", "--json"))
    assert first["run"] is None
    [hour] = first["capacity"]["hours"]
    assert hour["workers"] >= 4
    assert hour["waits_s"]["q"] <= 0.02
    assert document(load("textbook.toml", "--simulate-only", "--wait-target", "20ms", "--json")) == first


@pytest.mark.parametrize(("scale", "now"), [(1, 8), (0.5, 16), (2, 8)])
def test_the_report_has_the_number_of_workers_of_the_options(
    load: Load, tmp_path: Path, scale: float, now: int
) -> None:
    (tmp_path / "monday.csv").write_text("queue,arrival,run seconds\nmail,0,0.5\nmail,1,0.5\n")
    report = document(load("monday.csv", "--workers", 8, "--scale", scale, "--simulate-only", "--json"))
    assert report["capacity"]["workers_now"] == now


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--start", "30h"), "--start is a time of the day, at most 24h, not 30h"),
        (("--report", "nowhere/page.html"), "folder nowhere does not exist"),
    ],
    ids=["start", "report"],
)
def test_invalid_options_of_load_are_refused_before_the_load_runs(
    load: Load, options: tuple[str, ...], text: str
) -> None:
    assert text in load("order-timeouts", "--scale", 0.0001, *options, code=2).stderr


@pytest.mark.parametrize("report", ["load-report.html", None])
def test_a_report_that_would_be_written_through_a_link_is_refused_before_the_load_runs(
    load: Load, tmp_path: Path, report: str | None
) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "load-report.json").symlink_to("precious")
    options = () if report is None else ("--report", report)
    assert "load-report.json is a symbolic link" in load("order-timeouts", *options, code=1).stderr
    assert (tmp_path / "precious").read_text() == "precious"
    assert not (tmp_path / "load-report.html").exists()


def test_a_report_does_not_replace_a_json_file_that_is_no_report(load: Load, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "shop"}')
    refused = load("order-timeouts", "--simulate-only", "--report", "package.html", code=2)
    assert "package.json, which exists and is no report of `tickwheel load`" in refused.stderr
    assert (tmp_path / "package.json").read_text() == '{"name": "shop"}'


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_load_whose_server_does_not_answer_ends_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(ENDS_S)
        where = ["--url", f"grpc://127.0.0.1:{silent.getsockname()[1]}", "--namespace", "x"]
        with Process("load", [*TICKWHEEL, "load", "timestone", *where], tmp_path) as process:
            connection, _ = silent.accept()
            with connection:
                process.send_signal(number)
                assert process.wait(ENDS_S) == 130
    assert "Traceback" not in process.log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_load_reports_its_results_and_leaves_nothing_behind(
    tmp_path: Path, tickwheel_server: PrivateServer, number: signal.Signals
) -> None:
    (tmp_path / "textbook.toml").write_text(TEXTBOOK.replace("6s", "1h"))
    options = ["--url", tickwheel_server.url, "--json"]
    with (
        subprocess.Popen(
            [*TICKWHEEL, "load", "textbook.toml", *options], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        ) as process,
        tickwheel_server.client() as client,
    ):
        eventually(lambda: list(client.scan_iter(match="load-*:q:q:counts")), "the queue has messages", within=30)
        process.send_signal(number)
        output, _ = process.communicate(timeout=ENDS_S)
        assert process.returncode == 130
        run = json.loads(output)["run"]
        assert run["interrupted"]
        assert run["ended"] == "it was interrupted"
        assert list(client.scan_iter(match=f"{run['namespace']}*")) == []


@pytest.mark.parametrize(("number", "name"), [(signal.SIGKILL, "SIGKILL"), (40, "signal 40")], ids=["SIGKILL", "40"])
def test_a_dead_process_of_the_load_ends_the_run_with_a_report_and_an_error(
    tmp_path: Path, tickwheel_server: PrivateServer, number: int, name: str
) -> None:
    (tmp_path / "textbook.toml").write_text(TEXTBOOK.replace("6s", "1h"))
    options = ["--url", tickwheel_server.url, "--json"]
    with subprocess.Popen(
        [*TICKWHEEL, "load", "textbook.toml", *options],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        with tickwheel_server.client() as client:
            eventually(lambda: list(client.scan_iter(match="load-*:q:q:ready")), "the queue has messages", within=30)
        os.kill(parts_of(process.pid)[-1], number)
        output, complaint = process.communicate(timeout=ENDS_S)
    assert process.returncode == 1
    assert f"workers 1 ended with {name} before it reported its measurements" in complaint
    run = json.loads(output)["run"]
    assert run["ended"] == "a process of the load ended"
    assert run["counts"]["enqueued"] > 0


def test_the_processes_of_a_load_end_when_the_load_is_killed(tmp_path: Path, tickwheel_server: PrivateServer) -> None:
    (tmp_path / "textbook.toml").write_text(TEXTBOOK.replace("6s", "1h"))
    command = [*TICKWHEEL, "load", "textbook.toml", "--url", tickwheel_server.url, "--json"]
    with Process("load", command, tmp_path) as process:
        with tickwheel_server.client() as client:
            [counts] = eventually(lambda: list(client.scan_iter(match="load-*:q:q:counts")), "the load runs", within=30)
        parts = parts_of(process.pid)
        assert len(parts) >= 2
        process.kill()
    eventually(lambda: not any(is_part(pid) for pid in parts), "the processes of the load have ended")
    tickwheel_server.clear(counts.decode().partition(":")[0])


def test_a_limit_ends_a_load_and_the_remaining_messages_are_cancelled_in_a_namespace_that_stays(
    load: Load, tmp_path: Path, tickwheel_server: PrivateServer, driven_namespace: str
) -> None:
    (tmp_path / "later.toml").write_text(TEXTBOOK.replace("[[workers]]", 'delay = "1h"\n[[workers]]'))
    where = ["--url", tickwheel_server.url, "--namespace", driven_namespace]
    report = document(load("later.toml", "--messages", 20, "--for", "3s", *where, "--json"))
    assert report["run"]["ended"] == "the limit of 3 s was reached"
    assert report["run"]["counts"]["enqueued"] == 20
    assert "20 unfinished messages were cancelled" in report["run"]["left"]
    with Tickwheel(tickwheel_server.url, namespace=driven_namespace, drive=False) as tickwheel:
        assert tickwheel.queue("q").counts()["cancelled"] == 20


def test_a_queue_with_messages_of_other_programs_is_refused(
    load: Load, tmp_path: Path, tickwheel_server: PrivateServer, driven_namespace: str
) -> None:
    (tmp_path / "textbook.toml").write_text(TEXTBOOK)
    with Tickwheel(tickwheel_server.url, namespace=driven_namespace, drive=False) as tickwheel:
        tickwheel.create_queue("q", max_attempts=5).enqueue(b"not of the load")
    done = load("textbook.toml", "--url", tickwheel_server.url, "--namespace", driven_namespace, code=2)
    assert "queue 'q' of this namespace has unfinished messages, which the workers of the load would" in done.stderr


@pytest.mark.parametrize("polls", [False, True])
def test_a_run_ends_when_another_program_enqueues_messages_and_leaves_them_unharmed(
    tmp_path: Path, tickwheel_server: PrivateServer, driven_namespace: str, polls: bool
) -> None:
    content = TEXTBOOK.replace("6s", "1m")
    if polls:
        content = content.partition("[[workers]]")[0] + "polls = { per_second = 50, batch = 10 }"
    (tmp_path / "textbook.toml").write_text(content)
    where = ["--url", tickwheel_server.url, "--namespace", driven_namespace]
    with (
        Tickwheel(tickwheel_server.url, namespace=driven_namespace, drive=False) as tickwheel,
        subprocess.Popen(
            [*TICKWHEEL, "load", "textbook.toml", *where, "--json"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        queue = tickwheel.queue("q")
        with tickwheel_server.client() as client:
            eventually(lambda: client.exists(f"{driven_namespace}:{{0}}:q:q:counts"), "the load runs", within=30)
        # Payloads that no load can read: too short, JSON, and bytes that mean a run of some seconds.
        contents = [b"", b"x", b'{"order": 17, "customer": 42}', bytes(8) + b"\x40\x10" + bytes(10)]
        queue.enqueue_many([NewMessage(content, id=f"real-{n}") for n, content in enumerate(contents)])
        output, complaint = process.communicate(timeout=ENDS_S)
        assert process.returncode == 1, complaint
        assert re.search("queue 'q' has messages of other programs, such as 'real-[0-3]'", complaint)
        run = json.loads(output)["run"]
        assert run["ended"] == "a worker received messages of other programs"
        states = {(one.state, one.attempt) for one in (queue.get(f"real-{n}") for n in range(len(contents)))}
        assert states == {("pending", 0)}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["orders"], "unknown scenario 'orders': use media-encoding, order-timeouts, timestone"),
        (["timestone", "--url", "grpc://127.0.0.1:1"], "over grpc://, set --namespace"),
        (["timestone", "--speed-up", "0"], "0.001"),
        (["timestone", "--for", "soon"], "a duration is written like"),
    ],
)
def test_errors_in_a_scenario_are_reported_before_a_call_is_sent(load: Load, options: list[str], text: str) -> None:
    assert text in " ".join(load(*options, code=2).stderr.split())


def test_a_stall_of_the_server_counts_for_every_message_that_was_planned_during_the_stall(
    tickwheel_server: PrivateServer,
) -> None:
    latencies = asyncio.run(run_stalled_load(tickwheel_server, stall_s=0.5, per_s=200.0, seconds=1.0))
    # A closed loop would measure one slow call; here each of the hundred calls planned during the stall is slow.
    assert latencies["slow"] > 0.7 * 200 * 0.5
