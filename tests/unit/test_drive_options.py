"""The options that decide who drives: `--drive` and `--kafka` of workers and services, and the default election."""

import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tickwheel.cli.app import app
from tickwheel.cli.drive_option import Drive, last_resort_options
from tickwheel.cli.service_process import ServeOptions
from tickwheel.client.last_resort import LastResortOptions
from tickwheel.client.settings import ClientSettings
from tickwheel.election.lease_options import LeaseOptions
from tickwheel.errors import InvalidArgument
from tickwheel.kafka.library import build_settings
from tickwheel.kafka.options import KafkaOptions
from tickwheel.worker.banner import describe_driver

pytestmark = pytest.mark.unit

LOG = logging.getLogger("tickwheel.service")


def test_a_program_drives_unless_it_must_never_drive() -> None:
    assert last_resort_options(ServeOptions(), LOG, json=True) == LastResortOptions(json=True)
    assert last_resort_options(ServeOptions(drive=Drive.NEVER), LOG, json=False) is None


def test_a_program_drives_with_the_options_for_kafka_of_an_event_process(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("linger.ms=5\n")
    file.chmod(0o600)
    options = ServeOptions(
        kafka="127.0.0.1:1",
        topic="t",
        kafka_setting=["client.id=x=y"],
        kafka_config=file,
        sink_topics=["a*", "b"],
    )
    how = last_resort_options(options, LOG, json=False)
    assert how is not None
    assert how.kafka == KafkaOptions("127.0.0.1:1", "t", ("client.id=x=y",), ("a*", "b"), file)
    assert how.kafka.arguments() == [
        *("--kafka=127.0.0.1:1", "--topic=t", "--kafka-setting=client.id=x=y", "--sink-topics=a*", "--sink-topics=b"),
        f"--kafka-config={file}",
    ]


def test_the_log_of_the_program_warns_once_of_a_secret_that_every_user_of_the_host_can_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = ServeOptions(kafka="127.0.0.1:1", kafka_setting=["sasl.password=hunter2"])
    how = last_resort_options(options, LOG, json=False)
    assert how is not None
    assert how.kafka is not None
    # The child makes its producers from the same options.
    how.kafka.producers().close()
    assert [record.name for record in caplog.records if "--kafka-config" in record.getMessage()] == [LOG.name]
    assert "hunter2" not in caplog.text
    assert "hunter2" not in repr(how)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (ServeOptions(drive=Drive.NEVER, kafka="127.0.0.1:1"), "excludes --drive never"),
        (ServeOptions(topic="t"), "--topic is for Kafka: it needs --kafka"),
        (ServeOptions(kafka_config=Path("file")), "--kafka-config is for Kafka: it needs --kafka"),
        (ServeOptions(kafka_setting=["a=b"]), "--kafka-setting is for Kafka: it needs --kafka"),
        (ServeOptions(sink_topics=["a"]), "--sink-topics is for Kafka: it needs --kafka"),
        (ServeOptions(kafka="user@host:1"), "without a user and a password"),
        (ServeOptions(kafka="host:port"), "must name Kafka brokers"),
        (ServeOptions(kafka="127.0.0.1:1", topic="a b"), "a topic's name"),
        (ServeOptions(kafka="127.0.0.1:1", kafka_setting=["no value"]), "NAME=VALUE"),
        (ServeOptions(kafka="127.0.0.1:1", kafka_setting=["no.such.setting=1"]), "rejects its settings"),
    ],
)
def test_wrong_options_are_refused_before_the_program_starts(options: ServeOptions, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        last_resort_options(options, LOG, json=False)


@pytest.mark.parametrize("brokers", ["host", "host:9092", "a:1, b:2", "SSL://host:9092", "[::1]:9092"])
def test_brokers_are_hosts_with_ports(brokers: str) -> None:
    assert build_settings(brokers, {}) == {"bootstrap.servers": brokers}


@pytest.mark.parametrize("brokers", ["", ",", "host:", "host:port", "host:0", "host:65536", "a b:1", "http://host:1"])
def test_other_texts_are_no_brokers(brokers: str) -> None:
    with pytest.raises(InvalidArgument, match="must name Kafka brokers"):
        build_settings(brokers, {})


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_both_programs_have_the_options(command: str) -> None:
    text = CliRunner().invoke(app, [command, "--help"]).stdout
    for option in ("--drive", "--kafka", "--topic", "--kafka-setting", "--kafka-config", "--sink-topics"):
        assert option in text


def settings(url: str | None, data_dir: Path | None = None) -> ClientSettings:
    return ClientSettings.validate(url, "tw", data_dir, None, False, None)


@pytest.mark.parametrize("url", ["redis://127.0.0.1", "rediss://127.0.0.1", "unix:///run/redis.sock"])
def test_event_processes_of_one_server_elect_leaders_by_lease(url: str) -> None:
    assert settings(url).election == LeaseOptions()


def test_event_processes_of_a_data_directory_or_a_cluster_have_lock_files(tmp_path: Path) -> None:
    for chosen in (settings(None, tmp_path), settings("redis+cluster://127.0.0.1")):
        assert chosen.election == chosen.election_lock


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (("--url", "redis://127.0.0.1", "--lock", "file"), "leave --lock out"),
        (("--url", "redis+cluster://127.0.0.1"), "set --election"),
        (("--data-dir", "data"), "leave it out"),
    ],
)
def test_a_session_time_out_without_sessions_is_refused(options: tuple[str, ...], remedy: str) -> None:
    result = CliRunner().invoke(app, ["events", *options, "--session-timeout", "3s"])
    assert result.exit_code == 2
    text = " ".join(result.output.split())
    assert "--session-timeout has no effect with lock files" in text
    assert remedy in text


@pytest.mark.parametrize(
    ("url", "drives", "text"),
    [
        (None, True, "a child process of this worker, or by another program of the data directory"),
        (None, False, "driven by another program of the data directory"),
        ("redis://127.0.0.1", True, "or by a child process of a worker or a service while there are none"),
        ("redis://127.0.0.1", False, "not by this worker"),
        ("redis+cluster://127.0.0.1", True, "not by this worker"),
        ("grpc://127.0.0.1:7400", True, "or by the service itself if this is its own namespace"),
    ],
)
def test_the_first_lines_of_a_worker_name_who_drives(url: str | None, drives: bool, text: str, tmp_path: Path) -> None:
    assert text in describe_driver(settings(url, None if url else tmp_path), drives=drives)
