"""The command line in a shell: processes, pipes, signals, terminals, and the embedded server."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from services.process import Process, free_port
from tests.integration.cli.command_runner import ENDS_S, TICKWHEEL
from tests.support.wait_until import eventually
from tickwheel import Tickwheel
from tickwheel.embedded.file_lock import is_free
from tickwheel.plan import Request, send_request
from tickwheel.storage.keys import shard_key
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration


Run = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., Process]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An embedded server for one test, which is set in the environment of this process."""
    for name in list(os.environ):
        if name.startswith("TICKWHEEL_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("TICKWHEEL_DATA_DIR", str(tmp_path / "data"))
    return dict(os.environ)


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    """Run a command to its end."""

    def run_command(*args: object, code: int = 0, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*TICKWHEEL, *map(str, args)],
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=ENDS_S,
            check=False,
        )
        assert done.returncode == code, f"{args}\n{done.stdout}\n{done.stderr}"
        return done

    return run_command


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Start a command, and wait until its log contains a text. All commands are stopped at the end of the test."""
    with ExitStack() as stack:

        def start_command(*args: str, ready_when: str = "") -> Process:
            process = Process(args[0], [*TICKWHEEL, *args], tmp_path, ready_when)
            return stack.enter_context(process)

        yield start_command


@pytest.fixture
def events(start: Start) -> Start:
    """Start `tickwheel events`, and wait until it is elected."""
    return partial(start, "events", ready_when="elected")


def test_the_embedded_server_keeps_messages_between_commands(run: Run) -> None:
    run("enqueue", "orders", "order 17", "--id", "o17")
    assert json.loads(run("dequeue", "orders", "--complete", "--json").stdout)["payload"] == "order 17"
    assert json.loads(run("counts", "orders", "--json").stdout)["completed"] == 1


def test_a_dequeue_on_the_embedded_server_drives_the_wheel(run: Run) -> None:
    run("enqueue", "orders", "later", "--delay", "1500ms")
    assert run("dequeue", "orders", "--raw", "--complete", "--wait", "20s").stdout == "later\n"


def test_a_message_that_fell_due_while_no_process_drove_is_delivered_at_once(run: Run) -> None:
    run("enqueue", "orders", "past", "--delay", "1ms")
    assert run("dequeue", "orders", "--raw", "--complete").stdout == "past\n"


def test_doctor_finds_nothing_wrong_between_two_commands_on_the_embedded_server(run: Run) -> None:
    run("enqueue", "orders", "later", "--delay", "1h")
    [driver] = [finding for finding in json.loads(run("doctor", "--json").stdout) if finding["check"] == "driver"]
    assert driver["verdict"] == "ok"
    assert driver["text"].startswith("no program that drives the wheel has the directory open")


def test_the_event_process_drives_alone_and_exits_cleanly_on_sigterm(run: Run, events: Start, tmp_path: Path) -> None:
    process = events()
    [driver] = [finding for finding in json.loads(run("doctor", "--json").stdout) if finding["check"] == "driver"]
    assert (driver["verdict"], driver["text"].split(",")[0]) == ("ok", "a process of this host drives every shard")
    run("enqueue", "orders", "soon", "--delay", "200ms")
    assert run("dequeue", "orders", "--raw", "--complete", "--wait", "20s").stdout == "soon\n"

    assert process.stop(ENDS_S) == 0
    assert "ended" in process.log
    # The last program has closed, so the server has stopped.
    assert is_free(tmp_path / "data" / "server.lock")


def test_a_second_event_process_stands_by_and_takes_over(run: Run, events: Start, start: Start) -> None:
    first = events()
    second = start("events", ready_when="takes part in the election")
    first.kill()
    eventually(lambda: "elected" in second.log, "the second event process is elected", ENDS_S)
    second.send_signal(signal.SIGINT)
    assert second.wait(ENDS_S) == 0


@pytest.mark.parametrize("kind", ["lease", "lockfile"])
def test_events_works_on_a_server_by_url(
    run: Run, events: Start, tickwheel_server: PrivateServer, namespace: str, tmp_path: Path, kind: str
) -> None:
    where = ("--url", tickwheel_server.url, "--namespace", namespace)
    lock = ("--lock", str(tmp_path / "election")) if kind == "lockfile" else ()
    process = events(*where, "--shards", "3", *lock)
    assert ("--lock is deprecated" in process.log) == (kind == "lockfile")
    with Tickwheel(tickwheel_server.url, namespace=namespace, shards=3):
        run("enqueue", "orders", "soon", "--delay", "200ms", *where)
        assert run("dequeue", "orders", "--raw", "--complete", "--wait", "20s", *where).stdout == "soon\n"

        def kinds() -> set[str]:
            return {shard["election"] for shard in json.loads(run("shards", "--json", *where).stdout)}

        eventually(lambda: kinds() == {kind}, "all shards are claimed", ENDS_S)
    assert process.stop(ENDS_S) == 0


def test_events_exits_with_code_3_if_the_server_does_not_answer(run: Run) -> None:
    done = run("events", "--url", "redis://127.0.0.1:1", "--timeout", "100ms", code=3)
    assert done.stderr.splitlines()[-1].startswith("tickwheel: no answer from redis://127.0.0.1:1")


def test_events_logs_json_lines_on_request(events: Start) -> None:
    process = events("--json")
    process.stop(ENDS_S)
    ended = json.loads(process.log.splitlines()[-1])
    assert (ended["level"], ended["logger"], ended["text"]) == ("INFO", "tickwheel.events", "ended")


def test_a_closed_output_pipe_ends_a_command_without_an_error(run: Run, environment: dict[str, str]) -> None:
    lines = "".join(json.dumps({"payload": "x" * 100}) + "\n" for _ in range(3_000))
    run("enqueue", "orders", "--from", "-", stdin=lines)
    command = [*TICKWHEEL, "dequeue", "orders", "--limit", "1000", "--json", "--complete"]
    writer = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stderr is not None
    first = writer.stdout.readline()
    writer.stdout.close()
    assert json.loads(first)["payload"] == "x" * 100
    assert writer.stderr.read() == b""
    assert writer.wait(ENDS_S) == 141
    writer.stderr.close()
    # A message that was not printed was not completed, and remains.
    counts = json.loads(run("counts", "orders", "--json").stdout)
    assert (counts["completed"], counts["pending"] + counts["running"]) == (0, 3_000)


def test_commands_can_be_joined_by_pipes(run: Run, environment: dict[str, str]) -> None:
    run("enqueue", "orders", "--from", "-", stdin="{}\n" * 20)
    command = " ".join(TICKWHEEL)
    script = f"{command} dequeue orders --limit 20 --json | {command} complete orders - --json | wc -l"
    done = subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, timeout=ENDS_S, check=True
    )
    assert done.stdout.strip() == "20"


def test_redrive_reads_the_output_of_messages(run: Run, environment: dict[str, str]) -> None:
    run("queue", "create", "jobs", "--max-attempts", "1")
    run("enqueue", "jobs", "--from", "-", stdin="{}\n" * 3)
    for line in run("dequeue", "jobs", "--limit", "2", "--json").stdout.splitlines():
        message = json.loads(line)
        run("fail", "jobs", message["id"], "--token", message["token"])
    id_of = f"{sys.executable} -c 'import json, sys; [print(json.loads(line)[\"id\"]) for line in sys.stdin]'"
    command = " ".join(TICKWHEEL)
    script = f"{command} messages jobs --state errored --json | {id_of} | xargs -n 1 {command} redrive jobs"
    subprocess.run(["sh", "-c", script], env=environment, capture_output=True, timeout=ENDS_S, check=True)
    assert json.loads(run("counts", "jobs", "--json").stdout)["pending"] == 3


def in_shell(environment: dict[str, str], command: str) -> tuple[int, str, str]:
    """Return exit code, output and error output of a command line, which ends with its redirections."""
    line = f"{' '.join(TICKWHEEL)} {command}"
    done = subprocess.run(
        ["sh", "-c", line], env=environment, capture_output=True, text=True, timeout=ENDS_S, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", ["enqueue orders -", "enqueue orders --from -", "complete orders -"])
def test_a_command_that_must_read_a_closed_input_exits_with_code_2_and_one_line(
    run: Run, environment: dict[str, str], command: str
) -> None:
    run("queue", "create", "orders")
    closed = "tickwheel: standard input is closed: pipe or redirect data into it\n"
    assert in_shell(environment, f"{command} <&-") == (2, "", closed)


def test_a_closed_input_that_is_not_read_is_ignored(environment: dict[str, str]) -> None:
    assert in_shell(environment, "enqueue orders x --id o1 <&-") == (0, "o1\n", "")
    # A server and an event process that the command starts have an error output as usual.
    assert in_shell(environment, "dequeue orders --raw --complete <&-") == (0, "x\n", "")


def test_a_closed_output_is_refused_before_the_command_runs(run: Run, environment: dict[str, str]) -> None:
    run("queue", "create", "orders")
    code, _, complained = in_shell(environment, "enqueue orders x >&-")
    assert (code, complained.count("\n")) == (1, 1)
    assert complained.startswith("tickwheel: standard output is closed, so nothing was done")
    assert in_shell(environment, "enqueue orders x >&- 2>&-") == (1, "", "")
    assert json.loads(run("counts", "orders", "--json").stdout)["pending"] == 0


def test_a_closed_error_output_is_ignored(environment: dict[str, str]) -> None:
    assert in_shell(environment, "enqueue orders x --id o1 2>&-") == (0, "o1\n", "")
    assert in_shell(environment, "get orders missing 2>&-") == (4, "", "")


def test_output_without_a_terminal_has_no_colour_and_no_cut_lines(run: Run) -> None:
    long = "n" * 60
    run("enqueue", long, "x")
    for command in (("counts",), ("queue", "list"), ("queue", "show", long), ("doctor",)):
        shown = run(*command).stdout
        assert "\x1b" not in shown
        if command != ("doctor",):
            assert long in shown
    assert len(run("counts").stdout.splitlines()) == 2


def on_terminal(environment: dict[str, str], *args: str) -> str:
    """Return the output of a command on a terminal of 100 columns."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [*TICKWHEEL, *args],
        env=environment | {"TERM": "xterm-256color", "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    shown = b""
    # When the command has ended, reading fails with EIO on Linux and returns nothing on macOS.
    try:
        while piece := os.read(leader, 65_536):
            shown += piece
    except OSError:
        pass
    os.close(leader)
    assert process.wait(ENDS_S) == 0
    return shown.decode()


def test_a_terminal_gets_colour_and_a_progress_bar(run: Run, environment: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "messages.jsonl"
    file.write_text("{}\n" * 5_000)
    assert "5,000 messages" in on_terminal(environment, "enqueue", "orders", "--from", str(file))
    assert "\x1b[" in on_terminal(environment, "doctor")
    quiet = run("enqueue", "orders", "--from", file)
    assert (quiet.stdout, quiet.stderr) == ("5,000 added\n", "")


def test_ctrl_c_ends_a_waiting_dequeue_with_130(run: Run, start: Start, environment: dict[str, str]) -> None:
    run("queue", "create", "orders")
    with Tickwheel(data_dir=environment["TICKWHEEL_DATA_DIR"], drive=False) as tickwheel:
        dequeue = start("dequeue", "orders", "--wait", "1m")
        channels = tickwheel._context.channels("orders")
        subscribers = Request(0, command=("PUBSUB", "SHARDNUMSUB", *channels))
        eventually(lambda: tickwheel._run(send_request(subscribers)).value[1], "the dequeue waits", ENDS_S)
        dequeue.send_signal(signal.SIGINT)
        assert (dequeue.wait(ENDS_S), dequeue.log) == (130, "")


def test_events_waits_for_kafka_and_exits_at_once_on_a_signal(run: Run, events: Start) -> None:
    process = events("--kafka", "127.0.0.1:1", "--topic", "no-one-listens")
    run("enqueue", "orders", "--id", "order-17")
    assert "kept until relayed; the fullest shard has" in run("doctor").stdout
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert process.wait(ENDS_S) == 0
    assert time.monotonic() - began < 5


def test_events_sends_no_messages_to_topics_that_are_not_permitted(run: Run, events: Start) -> None:
    run("queue", "create", "orders", "--sink", "kafka://secret")
    process = events("--kafka", "127.0.0.1:1", "--no-relay", "--sink-topics", "mail.*", "--sink-topics", "sms")
    refusal = "messages of queue orders are not sent and stay Pending: no pattern of --sink-topics permits the topic"
    eventually(lambda: f"{refusal} secret of the sink: mail.*, sms" in process.log, "the sink is refused", ENDS_S)


def test_events_names_an_unknown_setting_of_kafka(run: Run) -> None:
    assert "NAME=VALUE" in run("events", "--kafka", "127.0.0.1:1", "--kafka-setting", "nonsense", code=2).stderr
    refused = run("events", "--kafka", "127.0.0.1:1", "--kafka-setting", "no.such=1", code=2)
    assert "no.such" in refused.stderr


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        (["--topic", "t"], "--topic is for the events that are relayed to Kafka: it needs --kafka"),
        (
            ["--outbox-limit", str(2**26)],
            "--outbox-limit is for the events that are relayed to Kafka: it needs --kafka",
        ),
        (["--outbox-full", "drop"], "--outbox-full is for the events that are relayed to Kafka: it needs --kafka"),
        (["--kafka-setting", "security.protocol=SSL"], "--kafka-setting is for Kafka: it needs --kafka"),
        (["--kafka-config", "kafka.properties"], "--kafka-config is for Kafka: it needs --kafka"),
        (["--sink-topics", "mail.*"], "--sink-topics is for Kafka: it needs --kafka"),
        (["--no-relay"], "--no-relay is for Kafka: it needs --kafka"),
        (
            ["--kafka", "127.0.0.1:1", "--no-relay", "--topic", "t"],
            "--topic is for the events that are relayed to Kafka: it excludes --no-relay",
        ),
    ],
    ids=lambda value: value[-2] if isinstance(value, list) and len(value) > 1 else None,
)
def test_options_of_kafka_are_refused_without_kafka(
    run: Run, tickwheel_server: PrivateServer, options: list[str], refusal: str
) -> None:
    where = ("--url", tickwheel_server.url, "--namespace", f"cli-{os.urandom(6).hex()}")
    refused = run("events", *where, *options, code=2)
    assert refused.stderr.splitlines() == [f"tickwheel: {refusal}"]
    assert "there is no namespace" in run("doctor", *where, code=4).stderr


def test_an_unknown_setting_of_kafka_leaves_no_namespace_behind(run: Run, tickwheel_server: PrivateServer) -> None:
    where = ("--url", tickwheel_server.url, "--namespace", f"cli-{os.urandom(6).hex()}")
    run("events", *where, "--kafka", "127.0.0.1:1", "--kafka-setting", "no.such=1", code=2)
    assert "there is no namespace" in run("doctor", *where, code=4).stderr


def test_an_unusable_lock_or_address_leaves_no_namespace_behind(
    run: Run, tickwheel_server: PrivateServer, tmp_path: Path
) -> None:
    where = ("--url", tickwheel_server.url, "--namespace", f"cli-{os.urandom(6).hex()}")
    lock = tmp_path / "missing" / "x.lock"
    refused = run("events", *where, "--lock", str(lock), code=2).stderr
    assert refused == f"tickwheel: --lock {lock}: cannot create files in {lock.parent}\n"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = run("events", *where, "--metrics", address, code=2).stderr
    assert refused.startswith(f"tickwheel: --metrics: cannot listen on {address}: ")
    assert refused.count("\n") == 1
    assert "there is no namespace" in run("doctor", *where, code=4).stderr


def test_a_change_of_the_kind_of_election_is_refused_in_one_line_with_the_remedy(
    run: Run, tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    where = ("--url", tickwheel_server.url, "--namespace", namespace)
    with Tickwheel(tickwheel_server.url, namespace=namespace) as tickwheel:
        tickwheel._run(
            send_request(Request(0, command=("HSET", shard_key(namespace, 0, "clock"), "election", "zookeeper")))
        )
        refused = run("events", *where, "--lock", str(tmp_path / "election"), code=1).stderr
    assert "Traceback" not in refused
    assert "reset-epoch" in refused.splitlines()[-1]


def test_events_refuses_to_relay_a_namespace_with_bounded_history(run: Run) -> None:
    run("enqueue", "orders", "--id", "order-17")
    assert "history" in run("events", "--kafka", "127.0.0.1:1", code=2).stderr


def test_events_serves_prometheus_metrics(run: Run, events: Start) -> None:
    run("enqueue", "orders", "--id", "order-17")
    address = f"127.0.0.1:{free_port()}"
    process = events("--metrics", address)

    def exports(sample: str) -> bool:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            return sample in answer.read().decode().splitlines()

    eventually(lambda: exports('tickwheel_shard_epoch{namespace="tw",shard="0"} 1.0'), "the metrics name the leader")
    sample = 'tickwheel_messages{namespace="tw",queue="orders",shard="0",state="pending"} 1.0'
    eventually(lambda: exports(sample), "the metrics count the messages of the queue")
    with urllib.request.urlopen(f"http://{address}/healthz", timeout=10) as answer:
        assert answer.read() == b"ok\n"
    # Stop the process in order; a killed process would leave its server running.
    assert process.stop(ENDS_S) == 0


@pytest.mark.parametrize("address", ["9464", "localhost:", "localhost:0", "localhost:x", ":9464"])
def test_events_refuses_an_invalid_address_of_metrics(run: Run, address: str) -> None:
    assert "HOST:PORT" in run("events", "--metrics", address, code=2).stderr


def test_events_sets_the_outbox_of_a_new_namespace(run: Run, events: Start) -> None:
    kafka = ("--kafka", "127.0.0.1:1")
    process = events(*kafka, "--outbox-limit", str(64 * 2**20), "--outbox-full", "drop")
    assert process.stop(ENDS_S) == 0
    assert "65536 KiB" in run("events", *kafka, "--outbox-limit", str(128 * 2**20), code=2).stderr
    assert "'drop'" in run("events", *kafka, "--outbox-full", "block", code=2).stderr


def test_events_checks_that_the_server_is_as_durable_as_requested(run: Run, tickwheel_server: PrivateServer) -> None:
    where = ("--url", tickwheel_server.url, "--namespace", f"cli-{os.urandom(6).hex()}")
    assert "appendfsync" in run("events", *where, "--durability", "fsync", code=1).stderr
