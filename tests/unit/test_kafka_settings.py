"""The settings of Kafka's client from the command line, and from a file that other users cannot read."""

import logging
from pathlib import Path

import pytest

from tickwheel.errors import InvalidArgument
from tickwheel.kafka.settings import read_kafka_settings, warn_about_secrets

pytestmark = pytest.mark.unit


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kafka.properties"
    path.write_text("# the broker\n\nsasl.password = a=b\nclient.id=file\n")
    path.chmod(0o640)
    return path


def test_a_file_has_one_setting_on_each_line_and_options_replace_them(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = read_kafka_settings(["client.id=option", "linger.ms=5"], file)
    assert settings == {"sasl.password": "a=b", "client.id": "option", "linger.ms": "5"}
    assert caplog.records == []


def test_a_password_among_the_options_causes_a_warning_without_the_password(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_about_secrets(["sasl.password=hunter2", "client.id=x", "sasl.password=hunter2"], logging.getLogger("a"))
    assert [record.name for record in caplog.records] == ["a"]
    assert "--kafka-setting sasl.password" in caplog.text
    assert "--kafka-config" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_file_that_every_user_can_read_is_refused(file: Path) -> None:
    file.chmod(0o644)
    with pytest.raises(InvalidArgument, match="accessible to every user"):
        read_kafka_settings([], file)


@pytest.mark.parametrize("content", [b"sasl.password\n", b"=hunter2\n", b"\xff=hunter2\n"])
def test_an_invalid_file_is_refused_and_its_content_not_quoted(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(InvalidArgument) as refused:
        read_kafka_settings([], file)
    assert "hunter2" not in str(refused.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot be read"):
        read_kafka_settings([], tmp_path / "missing")
    with pytest.raises(InvalidArgument, match="cannot be read"):
        read_kafka_settings([], tmp_path)
