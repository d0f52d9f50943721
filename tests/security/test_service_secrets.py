"""Secrets stay secret: even a verbose log contains no token, payload or key. The product never unpickles data."""

import re
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

from services.serving_program import SERVE, ServingProgram
from tests.integration.service_thread import ServiceThread
from tests.security.tokens import generic_client
from tests.support.wait_until import eventually
from tickwheel import Tickwheel, TickwheelError, Unauthenticated
from tickwheel.service.authorization import digest_of
from tickwheel.service.message_handlers import MessageHandlers
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

ROOT = Path(__file__).parents[2]
CERTS = ROOT / "tests/fault/certs"
TOKEN, WRONG = "tw_The-One-That-Is-Good", "tw_One-That-Nobody-Knows"
PAYLOAD = b"the patient's diagnosis"
NAMESPACE = "service-secrets"


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """Options for TLS and tokens, with files that only their owner can read."""
    tokens, key = tmp_path / "tokens.toml", tmp_path / "key.pem"
    tokens.write_text(
        f'[[token]]\nname = "clinic"\nsha256 = "{digest_of(TOKEN).hex()}"\n'
        f'roles = ["produce", "consume", "admin"]\nnamespaces = ["{NAMESPACE}"]\n'
    )
    key.write_bytes((CERTS / "server-key.pem").read_bytes())
    for file in (tokens, key):
        file.chmod(0o600)
    return ["--tokens", str(tokens), "--tls-key", str(key), "--tls-cert", str(CERTS / "server.pem")]


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["lines", "JSON"])
def test_no_token_payload_or_key_is_in_the_log_at_any_level(
    tickwheel_server: PrivateServer, options: list[str], form: list[str], tmp_path: Path
) -> None:
    with ServingProgram(tmp_path, *SERVE, tickwheel_server.url, "--verbose", *options, *form) as service:
        here = f"{service.target}?tls_ca={CERTS / 'server.pem'}"
        with Tickwheel(f"grpcs://:{TOKEN}@{here}", namespace=NAMESPACE) as client:
            jobs = client.create_queue("jobs")
            jobs.enqueue(PAYLOAD, id="one")
            with pytest.raises(TickwheelError):
                jobs.enqueue(PAYLOAD + b"!", id="one")
            [message] = jobs.dequeue(wait=timedelta(seconds=5))
            lease = message.token
            message.fail("boom", retry_in=timedelta(0))
            jobs.dequeue(wait=timedelta(seconds=5))[0].complete()
            with pytest.raises(TickwheelError):
                message.complete()
        with pytest.raises(Unauthenticated):
            Tickwheel(f"grpcs://:{WRONG}@{here}", timeout=timedelta(seconds=5))
        # A connection without TLS, and an invalid message that contains a payload.
        with suppress(TickwheelError):
            Tickwheel(f"grpc://:{TOKEN}@{service.target}", timeout=timedelta(milliseconds=100))
        trusted = grpc.ssl_channel_credentials((CERTS / "server.pem").read_bytes())
        with grpc.secure_channel(service.target, trusted) as channel, pytest.raises(grpc.RpcError):
            generic_client(channel, TOKEN).raw("Enqueue", b"\xff" + PAYLOAD)
        eventually(lambda: "Complete" in service.log, "the log names the call")
        log = service.log
    tickwheel_server.clear(NAMESPACE)
    key = (CERTS / "server-key.pem").read_text().splitlines()[1]
    for secret in (TOKEN, TOKEN[3:13], WRONG, WRONG[3:13], PAYLOAD.decode(), key[:20], lease.hex(), "PRIVATE KEY"):
        assert secret not in log
    assert "clinic" in log


def test_an_internal_error_is_reported_by_a_number_that_the_log_explains(
    tickwheel_server: PrivateServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("of all things")

    with Tickwheel(tickwheel_server.url, namespace=NAMESPACE, drive=False) as direct:
        direct.create_queue("jobs")
    monkeypatch.setattr(MessageHandlers, "get_message", broken)
    with ServiceThread(tickwheel_server.url) as service, grpc.insecure_channel(service.target) as channel:
        with pytest.raises(grpc.RpcError) as raised:
            generic_client(channel, "").call("GetMessage", namespace=NAMESPACE, queue="jobs", id="a")
        with Tickwheel(service.url, namespace=NAMESPACE) as client, pytest.raises(TickwheelError, match="error number"):
            client.queue("jobs").get("a")
    tickwheel_server.clear(NAMESPACE)
    assert raised.value.code() is grpc.StatusCode.INTERNAL
    [number] = re.findall(r"error number (\w+)", str(raised.value.details()))
    assert "of all things" not in str(raised.value.details())
    [line] = [
        record for record in caplog.records if f"error number {number}" in record.getMessage() and record.exc_info
    ]
    assert line.exc_info is not None
    assert line.exc_info[0] is ZeroDivisionError


PICKLES = re.compile(
    r"^\s*(?:import|from)\s+(?:pickle|cPickle|_pickle|dill|cloudpickle|shelve|marshal)\b", re.MULTILINE
)
# Calls that build code or objects from data that a peer may have sent.
BUILDS = re.compile(r"(?<![\w.])(?:eval|exec|__import__)\(|yaml\.(?:unsafe_)?load\(")


def test_no_shipped_code_unpickles_or_evaluates() -> None:
    for folder in ("scheduler", "wheel"):
        for file in (ROOT / folder).rglob("*.py"):
            text = file.read_text()
            assert not PICKLES.search(text), file
            assert not BUILDS.search(text), file


def test_tokens_are_found_by_their_digests_and_never_compared_one_by_one() -> None:
    """The file finds a token only by the keyed hash of its digest, so the time of the search reveals nothing."""
    text = (ROOT / "scheduler/tickwheel/service/authorization.py").read_text()
    assert "self._callers.get(digest_of(token))" in text
    assert not re.search(r"digest\s*[!=]=|[!=]=\s*\w*\.?digest\b", text)
