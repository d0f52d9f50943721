"""Programs warn once about a server whose version has a known vulnerability, and work with the server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.debian_redis import DebianRedis
from services.valkey import ValkeyServer
from tests.integration.cli.command_runner import document
from tests.integration.service_thread import ServiceThread
from tests.support.event_process_thread import run_event_process
from tickwheel import Tickwheel
from tickwheel.cli.app import app

pytestmark = pytest.mark.integration

WARNING = "Redis 7.0.15 has the vulnerability CVE-2025-49844"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    with DebianRedis("redis", tmp_path_factory.mktemp("redis")) as server:
        Tickwheel(server.url).close()
        yield server


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "vulnerability" in record.getMessage()]


def test_the_service_warns_when_it_starts(server: ValkeyServer, caplog: pytest.LogCaptureFixture) -> None:
    with ServiceThread(server.url) as service, Tickwheel(service.url) as tickwheel:
        assert tickwheel.queue("jobs").enqueue(b"x").created
    [warning] = warnings(caplog)
    assert warning.startswith(WARNING)
    assert "Upgrade to" in warning


def test_an_event_process_warns_when_it_starts(
    server: ValkeyServer, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with run_event_process(server.url, "tw", tmp_path / "lock"):
        pass
    [warning] = warnings(caplog)
    assert warning.startswith(WARNING)


def test_doctor_warns_without_a_bad_exit_code(server: ValkeyServer) -> None:
    result = CliRunner().invoke(app, ["doctor", "--quick", "--json", "--url", server.url])
    assert result.exit_code == 0
    [finding] = [finding for finding in document(result) if finding["check"] == "version"]
    assert finding["verdict"] == "warning"
    assert finding["text"].startswith(WARNING)
