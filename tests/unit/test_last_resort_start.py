"""When a program that drives as a last resort starts its child, and when it does not."""

import logging
import subprocess
import sys
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.wait_until import eventually
from tickwheel.client import last_resort as last_resort_module
from tickwheel.client.last_resort import CHECK_BACKOFF_S, LastResort, LastResortOptions
from tickwheel.client.leader_watch import LeaderWatch
from tickwheel.client.settings import ClientSettings
from tickwheel.election.lock_file import LockFileElection
from tickwheel.errors import Unavailable
from tickwheel.event_process import main as main_module
from tickwheel.kafka.options import KafkaOptions
from tickwheel.kafka.producer import KafkaProducers
from tickwheel.model.served_topics import ServedTopics
from tickwheel.operations.driving.obstacles import Obstacle
from tickwheel.plan import Plan
from tickwheel.redis.url import VARIABLE
from tickwheel.runtime import child_process
from tickwheel.storage.script_errors import ScriptError

pytestmark = pytest.mark.unit


def last_resort(
    options: LastResortOptions,
    durability: str | None = "memory",
    url: str = "redis://127.0.0.1:1",
    timeout: timedelta | None = None,
) -> LastResort:
    settings = ClientSettings.validate(url, "tw", None, durability, False, timeout)
    return LastResort(settings, options)


def test_no_child_is_started_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a child was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    stopped, ending = last_resort(LastResortOptions()), last_resort(LastResortOptions())
    stopped.stop()
    ending.begin_stop()
    for program in (stopped, ending):
        program._run_child()
        assert program.pid is None


def test_a_program_without_resources_for_a_thread_logs_that_it_does_not_drive(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    program = last_resort(LastResortOptions())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    program.start()
    assert "does not drive namespace tw: can't start new thread" in caplog.text
    assert not program.may_drive(0.0)
    program.stop()


def test_a_child_gets_the_options_of_its_program() -> None:
    kafka = KafkaOptions("host:1", "t", ("a=b",), ("x*",), Path("/etc/kafka.properties"))
    command = last_resort(LastResortOptions(kafka, json=True), "replica:2")._command()
    # The interpreter and its options come first.
    assert command[command.index("tickwheel.event_process") + 1 :] == [
        *("--until-eof", "--namespace", "tw", "--json", "--last-resort"),
        *("--kafka=host:1", "--topic=t", "--kafka-setting=a=b", "--sink-topics=x*"),
        *("--kafka-config=/etc/kafka.properties", "--replicas=2"),
    ]
    assert LastResortOptions(kafka).topics == ServedTopics("t", ("x*",))
    assert LastResortOptions().topics is None
    assert "--at-once" in last_resort(LastResortOptions(is_demanded=True))._command()
    sharing = LastResortOptions(metrics_socket=Path("/tmp/private/driver"))
    assert "--metrics-socket=/tmp/private/driver" in last_resort(sharing)._command()


def test_a_child_uses_the_options_of_its_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("linger.ms=7\n")
    file.chmod(0o600)
    kafka = KafkaOptions("127.0.0.1:1", "t", ("client.id=x",), ("a*", "b"), file)
    command = last_resort(LastResortOptions(kafka, is_demanded=True), "replica:2")._command()
    used: dict[str, Any] = {}

    def run_last_resort(url: str, namespace: str, producers: KafkaProducers, run: object, **options: Any) -> None:
        settings = {name: producers._settings[name] for name in ("bootstrap.servers", "client.id", "linger.ms")}
        used.update(options, url=url, namespace=namespace, topic=producers.topic, settings=settings)

    monkeypatch.setattr(main_module, "run_last_resort", run_last_resort)
    # This process keeps its signals, its limits and its log, and does not end with its standard input.
    for name in ("ignore_sigusr1", "raise_fd_limit"):
        monkeypatch.setattr(main_module, name, lambda: None)
    monkeypatch.setattr(main_module, "log_to_stderr", lambda **options: logging.NullHandler())
    arguments = command[command.index("tickwheel.event_process") :]
    monkeypatch.setattr(sys, "argv", [word for word in arguments if word != "--until-eof"])
    monkeypatch.setenv(VARIABLE, "redis://127.0.0.1:1")
    main_module.main()
    assert used == {
        "url": "redis://127.0.0.1:1",
        "namespace": "tw",
        "topic": "t",
        "settings": {"bootstrap.servers": "127.0.0.1:1", "client.id": "x", "linger.ms": "7"},
        "replicas": 2,
        "sink_topics": ["a*", "b"],
        "waits_for_unclaimed": False,
    }


def test_the_checks_become_less_frequent_while_the_obstacle_stays() -> None:
    program = last_resort(LastResortOptions(), None, "grpc://127.0.0.1:1")
    first, longest = CHECK_BACKOFF_S
    pauses = [program._drive() for _ in range(8)]
    assert first / 2 <= pauses[0] <= first
    assert all(longest / 2 <= pause <= longest for pause in pauses[4:])
    # A check has found another reason since then.
    program._logged = Obstacle("another reason")
    assert program._drive() <= first


def test_a_check_does_not_have_the_short_timeout_of_its_client() -> None:
    program = last_resort(LastResortOptions(), timeout=timedelta(milliseconds=1))
    with closing(program._open()) as io:
        assert io._seconds == io._servers.answer_s == last_resort_module._CALL_S


@pytest.mark.parametrize(("is_demanded", "level"), [(True, logging.WARNING), (False, logging.DEBUG)])
def test_a_client_that_must_drive_warns_if_its_server_does_not_answer(
    is_demanded: bool, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    program = last_resort(LastResortOptions(is_demanded=is_demanded))
    with caplog.at_level(logging.DEBUG):
        for _ in range(2):
            program._log_failure(Unavailable("no answer"))
    assert [record.levelno for record in caplog.records] == [level, logging.DEBUG]
    assert "cannot drive namespace tw; trying again: no answer" in caplog.text


def test_errors_do_not_end_the_checks(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    errors = [ScriptError("WRONGTYPE of another program"), ValueError("a bug"), OSError("no server")]
    has_checked = threading.Event()

    def check(program: LastResort) -> None:
        if errors:
            raise errors.pop(0)
        program._obstacle = Obstacle("a reason")
        has_checked.set()

    monkeypatch.setattr(last_resort_module, "_RETRY_S", 0.001)
    monkeypatch.setattr(LastResort, "_check", check)
    program = last_resort(LastResortOptions())
    program.start()
    assert has_checked.wait(20)
    program.stop()
    assert "ValueError: a bug" in caplog.text


def test_a_program_that_drains_compares_nothing_across_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_resort_module, "_CALL_S", 0.05)
    program = last_resort(LastResortOptions())
    watch = program._leader_watch
    with pytest.raises(Unavailable):
        program._drive_leaderless()
    assert program._leader_watch is not watch


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> LastResort:
    """A program to which nothing speaks against driving, and whose child ends with an error."""
    monkeypatch.setattr(LastResort, "_check", lambda program: None)
    monkeypatch.setattr(LastResort, "_command", lambda program: [sys.executable, "-c", "raise SystemExit(3)"])
    return last_resort(LastResortOptions(is_demanded=True))


def test_the_pause_before_another_child_with_lock_files_grows(failing: LastResort) -> None:
    failing._kind = LockFileElection.kind
    pauses = [failing._drive() for _ in range(4)]
    first, longest = last_resort_module._RESTART_BACKOFF_S
    assert pauses[0] <= first
    assert 4 * first <= pauses[3] <= longest


def test_the_pause_before_another_child_of_a_program_that_drains_grows(
    failing: LastResort, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(watch: LeaderWatch) -> Plan[bool]:
        yield from ()
        return True

    monkeypatch.setattr(LeaderWatch, "check", check)
    failing._is_ending = failing._has_had_child = True
    pauses = [failing._drive_leaderless() for _ in range(4)]
    first, longest = last_resort_module._RESTART_BACKOFF_S
    assert pauses[0] <= first
    assert 4 * first <= pauses[3] <= longest


def test_a_child_that_waits_for_its_restart_is_not_started_after_the_request_to_hand_over(
    failing: LastResort, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(child_process, "RESTART_BACKOFF_S", (600.0, 600.0))
    running = threading.Thread(target=failing._run_child)
    running.start()
    eventually(lambda: "restarting it in" in caplog.text, "the child has ended")
    failing.begin_stop()
    running.join(60)
    assert not running.is_alive()
    assert failing.pid is None
    failing.stop()


def test_a_program_whose_child_ends_before_it_drains_notices_that_nobody_drives(
    failing: LastResort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd can send the signal to stop to the child, too."""
    has_checked = threading.Event()

    def drive_leaderless(program: LastResort) -> float:
        has_checked.set()
        return 600.0

    monkeypatch.setattr(LastResort, "_drive_leaderless", drive_leaderless)
    monkeypatch.setattr(LastResort, "_command", lambda program: [sys.executable, "-c", ""])
    failing._run_child()
    failing.begin_stop()
    failing.start()
    assert has_checked.wait(20)
    failing.stop()
