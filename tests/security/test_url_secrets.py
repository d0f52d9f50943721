"""No output contains a password or a token of a URL, however wrong the URL is."""

import asyncio
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextvars import copy_context
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.integration.cli.test_missing_namespace import MAKE_IT, NEED_IT
from tickwheel import Tickwheel, aio
from tickwheel.cli.app import app
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.kafka.library import build_settings
from tickwheel.model.sink_url import validate_sink_url
from tickwheel.tasks import TaskApp
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

SECRET = "s3cret"
# Nothing listens here.
NOWHERE = "127.0.0.1:1"
TIMEOUT = timedelta(milliseconds=20)
# Some of these end the host of a URL or its port early, some are invalid in every text, and two contain '@' or '/' in
# the normal form that Python computes of a host.
SPECIAL = ["/", "#", "?", "@", ":", "[", "]", "%", "%2F", "%zz", "é", "\uff20", "\u2100", "\udcff", "\0", "\n"]
PASSWORDS = [SECRET, *(f"{SECRET}{text}{SECRET}" for text in SPECIAL)]
REDIS = ("redis", "rediss", "redis+cluster", "unix")
SERVERS = (*REDIS, "grpc", "grpcs")
SCHEMES = (*SERVERS, "Redis", "GRPCS", "redis+socket", "http", "zk", "kafka", "")
URLS = [
    *(f"{scheme}://:{password}@{NOWHERE}" for scheme in SCHEMES for password in PASSWORDS),
    # Without a host. A text after '@' would be the host.
    *(f"{scheme}://:{password}" for scheme in SERVERS for password in PASSWORDS if "@" not in password),
    *(f"{scheme}://{NOWHERE}?password={password}" for scheme in SCHEMES for password in PASSWORDS),
    *(f"{scheme}://{SECRET}@{NOWHERE}" for scheme in SCHEMES if scheme not in REDIS),
    *(f"{scheme}:/:{SECRET}@{NOWHERE}" for scheme in SCHEMES),
    *(f"unix://:{password}@/nowhere.sock" for password in PASSWORDS),
    f"rediss://{NOWHERE}?ssl_cert_reqs={SECRET}",
    f"redis://{NOWHERE}?db={SECRET}",
    f":{SECRET}@{NOWHERE}",
    SECRET,
    "redis+socket://[",
]
# A URL of each kind, because each command needs a moment.
SOME_URLS = [
    f"redis://:{SECRET}@{NOWHERE}",
    f"redis://:{SECRET}/{SECRET}@{NOWHERE}",
    f"Redis://:{SECRET}@{NOWHERE}",
    f"GRPCS://{SECRET}@{NOWHERE}",
    f"grpc://:{SECRET}\udcff@{NOWHERE}",
    f"rediss://{NOWHERE}?ssl_cert_reqs={SECRET}",
]
COMMANDS = [*NEED_IT, *MAKE_IT, ("demo",), ("load", "order-timeouts"), ("bench",), ("dev",), ("events",), ("serve",)]


def text_of_error(call: Callable[[], object]) -> str:
    """Return the texts of the exception that ``call`` raises, and of those that led to it, as a traceback prints them;
    an empty text if ``call`` raises none.
    """
    try:
        call()
    except BaseException as error:
        return repr(error) + "".join(traceback.format_exception(error))
    return ""


def open_client(url: Any) -> None:
    with Tickwheel(url, timeout=TIMEOUT):
        pass


def open_aio_client(url: Any) -> None:
    async def open_client() -> None:
        async with aio.Tickwheel(url, timeout=TIMEOUT):
            pass

    asyncio.run(open_client())


CONSTRUCTORS: dict[str, Callable[[Any], Any]] = {
    "Tickwheel": open_client,
    "aio": open_aio_client,
    "repr": lambda url: pytest.fail(repr(aio.Tickwheel(url))),
    "TaskApp": lambda url: pytest.fail(repr(TaskApp(url))),
    "ZooKeeper": ZooKeeperUrl.parse,
    "sink": validate_sink_url,
    "Kafka": lambda url: build_settings(url, {}) and None,
}


@pytest.mark.parametrize("constructor", CONSTRUCTORS)
@pytest.mark.parametrize("requires_tls", ["0", "1"])
def test_no_error_log_or_repr_of_a_client_contains_a_password(
    constructor: str, requires_tls: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKWHEEL_REQUIRE_TLS", requires_tls)
    raised = 0
    with caplog.at_level(logging.DEBUG):
        for url in [*URLS, *(url.encode(errors="replace") for url in SOME_URLS), *map(Path, SOME_URLS)]:
            text = text_of_error(lambda: CONSTRUCTORS[constructor](url))  # noqa: B023
            assert SECRET not in text, ascii(url)
            raised += bool(text)
    assert SECRET not in caplog.text
    assert raised > len(URLS) / 3


def check_command(words: tuple[str, ...], url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TICKWHEEL_FROM" if "import" in words else "TICKWHEEL_URL", url.replace("\0", ""))
    result = copy_context().run(CliRunner().invoke, app, [*words, "--timeout", "20ms"], input="{}\n")
    assert result.exit_code in (1, 2, 3), ascii(url)
    assert SECRET not in result.stdout + result.stderr, ascii(url)
    assert isinstance(result.exception, SystemExit), f"{url!a}: {result.exception!r}"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_output_of_a_command_contains_a_password(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for url in SOME_URLS:
        check_command(words, url, monkeypatch)
    assert SECRET not in caplog.text


@pytest.mark.parametrize("words", [("counts",), ("import", "celery", "--dry-run")], ids=" ".join)
def test_a_command_reports_every_wrong_url_in_a_line_without_the_password(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for url in URLS:
        check_command(words, url, monkeypatch)
    assert SECRET not in caplog.text


PROGRAMS = {
    "worker": ["-m", "tickwheel", "worker", "tests.fault.worker_app:app"],
    "events": ["-m", "tickwheel", "events", "--url", f"redis://{NOWHERE}", "--election", f"zk://:{SECRET}@h"],
    "Kafka": ["-m", "tickwheel", "events", "--url", f"redis://{NOWHERE}", "--kafka", f"kafka://:{SECRET}@h:1"],
    "event process": ["-m", "tickwheel.event_process", "--namespace", "n", "--election", f"zk://:{SECRET}@h"],
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_no_output_of_a_program_contains_a_password(program: str) -> None:
    environment = os.environ | {"TICKWHEEL_URL": f"Redis://:{SECRET}@{NOWHERE}"}
    done = subprocess.run(
        [sys.executable, *PROGRAMS[program]], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode in (1, 2)
    assert done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_a_demo_that_keeps_its_data_prints_no_password(tickwheel_server: PrivateServer, namespace: str) -> None:
    # The server has no password, and accepts each.
    url = tickwheel_server.url.replace("unix://", f"unix://default:{SECRET}@")
    options = ["--seconds", "3", "--workers", "1", "--shards", "1", "--keep", "--url", url, "--namespace", namespace]
    demo = [sys.executable, "-m", "tickwheel", "demo", *options]
    done = subprocess.run(demo, capture_output=True, text=True, timeout=120, check=True)
    assert f"tickwheel counts --url {url.replace(SECRET, '***')} --namespace {namespace}" in done.stdout
    assert SECRET not in done.stdout + done.stderr
