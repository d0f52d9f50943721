"""The token file changes while the service runs, and tokens become invalid during calls."""

import logging
import os
import sys
import threading
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.integration.generic_client import GenericClient
from tests.integration.service_thread import ServiceThread
from tests.security.tokens import client, entry, generic_client
from tests.support.jobs_namespace import jobs_namespace
from tests.support.wait_until import eventually
from tickwheel import Forbidden, InvalidArgument, LimitExceeded, NewMessage, Unauthenticated
from tickwheel.service import token_file
from tickwheel.service.authorization import Caller, TokenStore, digest_of
from tickwheel.service.token_file import TokenFile, check_names
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security

KEPT, REMOVED, ADDED = (f"tw_{name}-Of-A-File" for name in "abc")
NAMESPACE = "service-token-file"
HERE = f'namespaces = ["{NAMESPACE}"]\n'
ROLES = '["produce", "consume", "admin"]'
WAIT = timedelta(seconds=20)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.toml"
    path.touch(0o600)
    path.write_text(entry(KEPT, ROLES, HERE) + entry(REMOVED, ROLES, HERE))
    return path


@pytest.fixture
def service(tickwheel_server: PrivateServer, file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceThread]:
    monkeypatch.setattr(token_file, "POLL_INTERVAL_S", 0.1)
    with (
        jobs_namespace(tickwheel_server, NAMESPACE),
        ServiceThread(tickwheel_server.url, tokens=TokenFile(file)) as serving,
    ):
        yield serving


class BackgroundCall:
    """A call in a thread, and its result or exception."""

    def __init__(self, call: Any) -> None:
        self.outcome: Any = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.outcome = self._call()
        except Exception as error:
            self.outcome = error

    def ended(self) -> Any:
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self.outcome


def in_stream(generic_client: GenericClient, started: threading.Event) -> BackgroundCall:
    """Start a stream of deliveries that has delivered its only message."""
    generic_client.call("Enqueue", namespace=NAMESPACE, queue="streamed", message={})
    requests: Any = chain(
        [{"namespace": NAMESPACE, "queue": "streamed", "credit": 1}], iter(threading.Event().wait, None)
    )

    def read() -> None:
        for _ in generic_client.stream("DequeueStream", requests, timeout=60):
            started.set()

    return BackgroundCall(read)


def test_a_new_token_works_soon_and_calls_of_a_removed_token_end_also_while_they_wait(
    service: ServiceThread, file: Path
) -> None:
    started = threading.Event()
    with (
        client(service, REMOVED, namespace=NAMESPACE) as removed,
        client(service, KEPT, namespace=NAMESPACE) as tickwheel,
        grpc.insecure_channel(service.target) as channel,
    ):
        parked = BackgroundCall(lambda: removed.queue("jobs").dequeue(wait=WAIT))
        other = BackgroundCall(lambda: tickwheel.queue("jobs").dequeue(wait=WAIT))
        stream = in_stream(generic_client(channel, REMOVED), started)
        assert started.wait(20)
        file.write_text(entry(KEPT, ROLES, HERE) + entry(ADDED, ROLES, HERE))
        assert isinstance(parked.ended(), Unauthenticated)
        raised = stream.ended()
        assert isinstance(raised, grpc.RpcError)
        assert raised.code() is grpc.StatusCode.UNAUTHENTICATED
        assert "is no longer valid" in str(raised.details())
        with pytest.raises(Unauthenticated):
            removed.queue("jobs").counts()
        with client(service, ADDED, namespace=NAMESPACE) as added:
            added.queue("jobs").enqueue(b"x", id="one")
        assert [message.id for message in other.ended()] == ["one"]


def test_an_invalid_file_keeps_the_tokens_and_is_logged_once(
    service: ServiceThread, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = file.read_text()
    with caplog.at_level(logging.INFO, "tickwheel.service"), client(service, REMOVED, namespace=NAMESPACE) as removed:
        file.write_text(whole[:-20] + "[[tok")
        eventually(lambda: "the tokens stay unchanged" in caplog.text, "the log reports it")
        assert "is not valid TOML" in caplog.text
        removed.queue("jobs").counts()
        file.unlink()
        eventually(lambda: "cannot be read" in caplog.text, "the log reports it")
        removed.queue("jobs").counts()
        file.touch(0o600)
        file.write_text(entry(KEPT, ROLES, HERE))
        eventually(lambda: "has changed; tokens now valid: 1" in caplog.text, "the file is valid again")
        assert caplog.text.count("is not valid TOML") == 1
        with pytest.raises(Unauthenticated):
            removed.queue("jobs").counts()


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o644])
@pytest.mark.parametrize("way", ["the same file", "another file", "another link"])
def test_a_changed_file_that_every_user_can_access_is_refused_as_at_the_start(
    file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, way: str
) -> None:
    added = (("authorization", f"Bearer {ADDED}"),)
    changed = file if way == "the same file" else tmp_path / "changed"
    tokens = TokenFile(file)
    changed.write_text(entry(ADDED, ROLES, HERE))
    changed.chmod(mode)
    if way == "another link":
        (tmp_path / "link").symlink_to(changed)
        (tmp_path / "link").replace(file)
    elif way == "another file":
        changed.replace(file)
    for _ in range(3):
        tokens.reload_if_changed()
    with pytest.raises(InvalidArgument, match=f"{file} is accessible to every user of this machine: chmod o-rwx"):
        TokenFile(file)
    with pytest.raises(Unauthenticated):
        tokens.token_store.authenticate(added)
    [line] = [record.getMessage() for record in caplog.records if record.name == "tickwheel.service"]
    assert f"the tokens stay unchanged: the token file {file} is accessible to every user" in line
    file.chmod(0o640)
    tokens.reload_if_changed()
    assert tokens.token_store.authenticate(added).name == ADDED.removeprefix("tw_")


@pytest.mark.parametrize("text", ["[" * 5_000, "9" * 5_000], ids=["nested", "integer"])
def test_a_file_with_a_value_that_python_cannot_read_keeps_the_tokens(
    file: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = TokenFile(file)
    file.write_text(f"token = {text}")
    tokens.reload_if_changed()
    assert "the tokens stay unchanged" in caplog.text
    assert tokens.token_store.authenticate([("authorization", f"Bearer {KEPT}")])


def test_after_any_error_of_reading_the_file_later_changes_are_loaded(
    service: ServiceThread, file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("tomllib.loads", fail)
        file.write_text("")
        eventually(lambda: "ZeroDivisionError" in caplog.text, "the log reports it")
    file.write_text(entry(ADDED, ROLES, HERE))
    with grpc.insecure_channel(service.target) as channel:
        added = generic_client(channel, ADDED)
        eventually(lambda: not is_unknown(added), "the new token is valid")


class SlowRead:
    """Each read of a token file lasts until the end of the ``with`` block. `began` is set when a read has begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self._may_end = threading.Event(), threading.Event()
        loads = tomllib.loads

        def load(text: str, **options: Any) -> dict[str, Any]:
            self.began.set()
            self._may_end.wait()
            return loads(text, **options)

        monkeypatch.setattr("tomllib.loads", load)

    def __enter__(self) -> "SlowRead":
        return self

    def __exit__(self, *_: object) -> None:
        self._may_end.set()


def test_the_service_answers_calls_while_it_reads_the_changed_file(
    service: ServiceThread, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(token_file, "SLOW_READ_S", 0.1)
    with client(service, KEPT, namespace=NAMESPACE) as kept, SlowRead(monkeypatch) as read:
        file.write_text(entry(KEPT, ROLES, HERE) + entry(ADDED, ROLES, HERE))
        assert read.began.wait(20)
        kept.queue("jobs").counts()
        eventually(lambda: "could not be read within 0.1 s" in caplog.text, "the log reports the slow read")
    with grpc.insecure_channel(service.target) as channel:
        added = generic_client(channel, ADDED)
        eventually(lambda: not is_unknown(added), "the new token is valid")
    assert caplog.text.count("could not be read within 0.1 s") == 1
    assert caplog.text.count("is readable again, after") == 1


def test_the_service_stops_although_a_read_of_the_file_does_not_end(
    service: ServiceThread, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SlowRead(monkeypatch) as read:
        file.write_text(entry(KEPT, ROLES, HERE))
        assert read.began.wait(20)
        service.stop()


def test_a_pipe_in_place_of_the_file_is_refused_and_later_changes_are_loaded(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = TokenFile(file)
    file.unlink()
    os.mkfifo(file, 0o600)
    for _ in range(2):
        tokens.reload_if_changed()
    [line] = [record.getMessage() for record in caplog.records if record.name == "tickwheel.service"]
    assert "it must be a regular file, or a symbolic link to one, and is a pipe" in line
    file.unlink()
    file.touch(0o600)
    file.write_text(entry(ADDED, ROLES, HERE))
    tokens.reload_if_changed()
    assert tokens.token_store.authenticate([("authorization", f"Bearer {ADDED}")])


class CountedName(str):
    """A name that counts the comparisons of all names."""

    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.comparisons += 1
        return str.__eq__(self, other)


def test_the_check_of_the_names_takes_about_one_step_for_each_token() -> None:
    callers = [Caller(CountedName(f"name-{n}")) for n in range(1_000)]
    check_names(Path("tokens.toml"), callers)
    assert CountedName.comparisons < len(callers)
    with pytest.raises(InvalidArgument, match="two tokens named 'name-7'"):
        check_names(Path("tokens.toml"), [*callers, Caller("name-7")])


def steps_of_authentication(tokens: int) -> int:
    """Return the number of functions that run when a call with the last of many tokens is authenticated."""
    store = TokenStore([Caller(f"name-{n}", digest_of(f"tw_{n}")) for n in range(tokens)])
    metadata = (("authorization", f"Bearer tw_{tokens - 1}"),)
    steps = 0

    def count(frame: object, event: str, function: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        caller = store.authenticate(metadata)
    finally:
        sys.setprofile(None)
    assert caller.name == f"name-{tokens - 1}"
    return steps


def test_the_work_of_a_call_does_not_depend_on_the_number_of_tokens() -> None:
    assert steps_of_authentication(1_000) == steps_of_authentication(10)


def test_new_limits_of_a_token_apply_at_once_to_connected_clients(service: ServiceThread, file: Path) -> None:
    with client(service, KEPT, namespace=NAMESPACE) as tickwheel:
        for _ in range(50):
            tickwheel.queue("jobs").counts()
        file.write_text(entry(KEPT, ROLES, HERE + "messages_per_second = 1"))

        def is_over_limit() -> bool:
            try:
                tickwheel.queue("jobs").enqueue_many(NewMessage(b"x") for _ in range(20))
            except LimitExceeded:
                return True
            return False

        eventually(is_over_limit, "the new limit applies")


def test_a_waiting_call_ends_when_its_token_loses_the_right(service: ServiceThread, file: Path) -> None:
    with (
        client(service, REMOVED, namespace=NAMESPACE) as removed,
        client(service, KEPT, namespace=NAMESPACE) as tickwheel,
    ):
        mine, others = (BackgroundCall(lambda q=q: removed.queue(q).dequeue(wait=WAIT)) for q in ("mail", "jobs"))
        file.write_text(entry(KEPT, ROLES, HERE) + entry(REMOVED, ROLES, f'{HERE}queues = ["mail"]'))
        assert isinstance(others.ended(), Forbidden)
        # The client has repeated the other call.
        tickwheel.queue("mail").enqueue(b"x", id="one")
        assert [message.id for message in mine.ended()] == ["one"]


def test_a_token_that_expires_ends_its_waiting_calls(service: ServiceThread, file: Path) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=2)
    file.write_text(entry(KEPT, ROLES, HERE) + entry(REMOVED, ROLES, f"{HERE}expires = {soon.isoformat()}"))
    with client(service, REMOVED, namespace=NAMESPACE) as removed:
        began = datetime.now(UTC)
        with pytest.raises(Unauthenticated, match="expired"):
            removed.queue("jobs").dequeue(wait=WAIT)
        assert soon - timedelta(milliseconds=50) <= datetime.now(UTC) < began + WAIT / 2
        with pytest.raises(Unauthenticated, match="expired at"):
            removed.queue("jobs").counts()


def test_a_stream_of_a_withdrawn_token_ends_though_its_client_does_not_read(service: ServiceThread, file: Path) -> None:
    with (
        client(service, KEPT, WAIT, namespace=NAMESPACE) as tickwheel,
        grpc.insecure_channel(service.target) as channel,
    ):
        large, removed = tickwheel.queue("large"), generic_client(channel, REMOVED)
        large.enqueue_many([NewMessage(bytes(30_000)) for _ in range(1_000)])
        requests: Any = chain(
            [{"namespace": NAMESPACE, "queue": "large", "credit": 1_000}], iter(threading.Event().wait, None)
        )
        stream = removed.stream("DequeueStream", requests, timeout=60)
        eventually(lambda: large.counts()["running"], "the first messages are leased")
        file.write_text(entry(KEPT, ROLES, HERE))
        eventually(lambda: is_unknown(removed), "the token is gone")
        read: list[Any] = []
        with pytest.raises(grpc.RpcError) as raised:
            read.extend(delivery for answer in stream for delivery in answer["deliveries"])
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert large.counts()["running"] < 1_000


def test_a_batch_of_dequeues_of_a_withdrawn_token_ends_though_its_client_does_not_read(
    service: ServiceThread, file: Path
) -> None:
    with (
        client(service, KEPT, WAIT, namespace=NAMESPACE) as tickwheel,
        grpc.insecure_channel(service.target) as channel,
    ):
        large, removed = tickwheel.queue("unread"), generic_client(channel, REMOVED)
        large.enqueue_many([NewMessage(bytes(30_000)) for _ in range(1_000)])
        request = {"namespace": NAMESPACE, "queue": "unread", "limit": 10, "first_attempt": True}
        unread = removed.begin("DequeueBatch", requests=[request | {"request_id": f"slot-{n}:1"} for n in range(100)])
        eventually(lambda: large.counts()["running"], "the first messages are leased")
        file.write_text(entry(KEPT, ROLES, HERE))
        eventually(lambda: is_unknown(removed), "the token is gone")
        with pytest.raises(grpc.RpcError) as raised:
            list(unread)
        assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert large.counts()["running"] < 1_000


def is_unknown(generic_client: GenericClient) -> bool:
    try:
        generic_client.call("ListQueues", namespace=NAMESPACE)
    except grpc.RpcError as error:
        return error.code() is grpc.StatusCode.UNAUTHENTICATED
    return False
