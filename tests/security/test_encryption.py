"""Data that would leave this machine without TLS: metrics, access tokens, and everything if TLS is required."""

import logging
import os
import subprocess
import sys
from typing import Any, cast

import pytest
from typer.main import get_command

from tickwheel import InvalidArgument, Tickwheel, aio
from tickwheel.cli.app import app
from tickwheel.client import encryption
from tickwheel.client.encryption import check_encryption
from tickwheel.redis.encryption import VARIABLE

pytestmark = pytest.mark.security

ENDS_S = 60
TOKEN = "tw_secret"
EXPOSED = [
    f"grpc://:{TOKEN}@service.example:7400",
    f"grpc://:{TOKEN}@192.0.2.1:7400",
    f"grpc://:{TOKEN}@localhost.example:7400",
    f"grpc://:{TOKEN}@[2001:db8::1]:7400",
]
LOCAL = [
    f"grpc://:{TOKEN}@localhost:7400",
    f"grpc://:{TOKEN}@127.8.9.1:7400",
    f"grpc://:{TOKEN}@[::1]:7400",
    "redis://:secret@LOCALHOST",
    "redis://:secret@/1",
    "unix:///run/redis.sock?password=secret",
    "redis+cluster://:secret@127.0.0.1:1,[::1]:2",
]
ENCRYPTED = [
    f"grpcs://:{TOKEN}@service.example:7400",
    "rediss://:secret@redis.example",
    "rediss+cluster://:secret@a.example,b.example",
]
COMMANDS = {
    "events": ["events", "--url", "redis://127.0.0.1:1"],
    "worker": ["worker", "no_such_module:app"],
    "serve": ["serve", "--listen", "127.0.0.1:0", "--url", "redis://127.0.0.1:1"],
}


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(encryption, "_has_warned", False)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tickwheel", *arguments],
        env={key: value for key, value in os.environ.items() if not key.startswith("TICKWHEEL_")} | environment,
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_command_serves_metrics_to_other_machines_only_if_that_is_accepted(command: list[str]) -> None:
    metrics = ("--metrics", "0.0.0.0:9464", "--timeout", "100ms")
    refused = run(command[0], *command[1:], *metrics[:2])
    assert refused.returncode == 2
    assert "other machines can reach --metrics 0.0.0.0:9464" in " ".join(refused.stderr.split())
    accepted = run(*metrics[2:], command[0], *command[1:], *metrics[:2], "--insecure")
    assert "other machines can reach" not in accepted.stderr
    # A later check of the command fails: there is no server, or no module.
    assert accepted.returncode != 0


def test_every_command_with_metrics_is_tested_above() -> None:
    with_metrics = {
        name
        for name, command in cast(Any, get_command(app)).commands.items()
        if any("--metrics" in parameter.opts for parameter in command.params)
    }
    assert with_metrics == COMMANDS.keys()


@pytest.mark.parametrize("url", EXPOSED)
def test_a_token_without_tls_to_another_machine_is_a_warning_once(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            check_encryption(url)
    [record] = caplog.records
    assert "is sent to" in record.getMessage()
    assert TOKEN not in record.getMessage()


@pytest.mark.parametrize("url", [*LOCAL, *ENCRYPTED, "grpc://service.example:7400", "redis://:secret@redis.example"])
def test_other_urls_are_no_warning(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_encryption(url)
    assert not caplog.records


@pytest.mark.parametrize(
    "url",
    [
        *EXPOSED,
        "grpc://service.example:7400",
        "redis://redis.example",
        "redis://:secret@192.0.2.1/1",
        "redis+cluster://127.0.0.1:1,redis.example:2",
    ],
)
def test_if_tls_is_required_a_client_refuses_a_url_of_another_machine_without_tls(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    with pytest.raises(InvalidArgument, match=VARIABLE) as blocking:
        Tickwheel(url)
    assert TOKEN not in str(blocking.value)
    assert "secret" not in str(blocking.value)
    with pytest.raises(InvalidArgument, match=VARIABLE):
        aio.Tickwheel(url)


@pytest.mark.parametrize("url", [*LOCAL, *ENCRYPTED])
def test_if_tls_is_required_local_and_encrypted_urls_stay_allowed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    check_encryption(url)


@pytest.mark.parametrize("value", ["yes", "true", "2", " 1"])
def test_an_unclear_requirement_of_tls_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(InvalidArgument, match=VARIABLE):
        check_encryption("redis://127.0.0.1")


def test_if_tls_is_required_programs_refuse_a_url_of_another_machine_without_tls() -> None:
    url = f"grpc://:{TOKEN}@192.0.2.1:7400"
    refused = run("enqueue", "orders", TICKWHEEL_URL=url, TICKWHEEL_REQUIRE_TLS="1")
    assert (refused.returncode, VARIABLE in refused.stderr) == (2, True)
    for command in (["serve", "--listen", "127.0.0.1:0"], ["events"], ["doctor"]):
        refused = run(*command, TICKWHEEL_URL="redis://192.0.2.1", TICKWHEEL_REQUIRE_TLS="1")
        assert (refused.returncode, VARIABLE in refused.stderr) == (2, True)
    event_process = subprocess.run(
        [sys.executable, "-m", "tickwheel.event_process", "--namespace", "tw", "--lock", "lock"],
        env=os.environ | {"TICKWHEEL_URL": "redis://192.0.2.1", VARIABLE: "1"},
        capture_output=True,
        text=True,
        timeout=ENDS_S,
        check=False,
    )
    assert (event_process.returncode, VARIABLE in event_process.stderr) == (1, True)
