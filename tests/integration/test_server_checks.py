"""Requirements on a server: a user's rights, durability, no eviction. They are checked before the first write."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from services.redis_cluster import RedisCluster
from tests.support.wait_until import eventually
from tickwheel import Forbidden, NotDurable, Queue, Tickwheel, TickwheelError, Unavailable, aio
from tickwheel.cli.app import app
from tickwheel.redis.acl import users
from tickwheel.redis.topology import SINGLE
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

HOUR = timedelta(hours=1)
DOCS = Path(__file__).parents[2] / "docs" / "operations.md"


@pytest.fixture
def private() -> Iterator[PrivateServer]:
    """A server whose settings a test may change."""
    with PrivateServer(appendonly=True) as server:
        yield server


@pytest.fixture
def admin(private: PrivateServer) -> Iterator[Any]:
    with private.client() as client:
        yield client


def url_of(server: PrivateServer, user: str, password: str) -> str:
    """Return the server's URL for one of its users."""
    return f"{server.url.replace('unix://', f'unix://{user}@')}?password={password}"


def test_a_wrong_password_is_forbidden_at_once(private: PrivateServer, admin: Any) -> None:
    admin.execute_command("ACL", "SETUSER", "worker", "on", ">right", "~*", "&*", "+@all")
    with Tickwheel(url_of(private, "worker", "right")) as tickwheel:
        assert tickwheel.queue("jobs").enqueue().created
    with pytest.raises(Forbidden, match="the server refused this user") as refused:
        Tickwheel(url_of(private, "worker", "wrong"))

    async def opened() -> None:
        async with aio.Tickwheel(url_of(private, "worker", "wrong")):
            pass

    with pytest.raises(Forbidden, match="the server refused this user"):
        asyncio.run(opened())
    assert "wrong" not in str(refused.value).replace("WRONGPASS", "")


@pytest.mark.parametrize(
    ("rights", "refusal"),
    [
        (["~*", "&*", "+@all", "-@scripting"], "no permissions to run the 'evalsha' command"),
        (["~*", "&*", "+@all", "-set"], r"may not run SET on"),
        (["~*", "&*", "+@all", "-@write"], r"may not run .*HSET.*ZADD"),
        (["~*", "&*", "+@all", "-exec"], r"may not run EXEC on"),
        (["%R~*", "&*", "+@all"], r"No permissions to access a key"),
        (["~*", "resetchannels", "+@all"], r"may not run SPUBLISH on"),
        (["~other:*", "&*", "+@all"], r"No permissions to access a key"),
    ],
)
def test_a_user_that_lacks_a_right_of_the_scripts_is_forbidden_before_anything_is_written(
    private: PrivateServer, admin: Any, rights: list[str], refusal: str
) -> None:
    admin.execute_command("ACL", "SETUSER", "short", "reset", "on", ">p", *rights)
    with pytest.raises(Forbidden, match=refusal):
        Tickwheel(url_of(private, "short", "p"))
    assert admin.dbsize() == 0


def test_a_user_that_loses_a_right_is_forbidden(private: PrivateServer, admin: Any) -> None:
    admin.execute_command("ACL", "SETUSER", "reader", "on", ">p", "~*", "&*", "+@all")
    with Tickwheel(url_of(private, "reader", "p")) as tickwheel:
        queue = tickwheel.queue("jobs")
        queue.enqueue(id="m")
        before = {key: admin.dump(key) for key in admin.scan_iter()}
        admin.execute_command("ACL", "SETUSER", "reader", "-@scripting")
        for refused in (queue.enqueue, queue.dequeue, queue.counts, lambda: queue.cancel("m")):
            with pytest.raises(Forbidden, match=r"the server refused this user: .*no permissions"):
                refused()
        assert {key: admin.dump(key) for key in admin.scan_iter()} == before


def test_a_user_of_other_keys_is_forbidden(private: PrivateServer, admin: Any) -> None:
    admin.execute_command("ACL", "SETUSER", "other", "on", ">p", "~other:*", "&*", "+@all")
    with Tickwheel(url_of(private, "other", "p"), namespace="other") as tickwheel:
        assert tickwheel.queue("jobs").enqueue().created
    with pytest.raises(Forbidden) as refused:
        Tickwheel(url_of(private, "other", "p"), namespace="tw")
    assert "access a key; the client uses namespace 'tw' (command: " in str(refused.value)
    assert "If the user belongs to another namespace, name that one" in str(refused.value)


class Quiet(BaseHTTPRequestHandler):
    """Refuses every request, and logs nothing."""

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def web_server() -> Iterator[str]:
    """The URL of a server that is not Redis."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as httpd:
        serving = Thread(target=httpd.serve_forever)
        serving.start()
        yield f"redis://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()
        serving.join()


def test_a_server_of_another_protocol_is_refused(web_server: str) -> None:
    with pytest.raises(Unavailable, match="Protocol"):
        Tickwheel(web_server, timeout=timedelta(milliseconds=100))

    async def opened() -> None:
        async with aio.Tickwheel(web_server, timeout=timedelta(milliseconds=100)):
            pass

    with pytest.raises(Unavailable, match="Protocol"):
        asyncio.run(opened())
    result = CliRunner().invoke(app, ["counts", "--url", web_server, "--timeout", "100ms"])
    assert (result.exit_code, result.stderr.count("\n")) == (3, 1)


def test_an_answer_takes_no_longer_than_the_timeout_of_the_call(private: PrivateServer) -> None:
    for timeout, answer_s in ((timedelta(milliseconds=300), 0.3), (timedelta(seconds=20), 5.0), (None, 5.0)):
        with Tickwheel(private.url, timeout=timeout) as tickwheel:
            settings = tickwheel._io._servers.pool(SINGLE).connection_kwargs
            assert (settings["socket_timeout"], settings["socket_connect_timeout"]) == (answer_s, answer_s)


def test_a_database_that_the_server_does_not_have_is_refused_at_once(private: PrivateServer) -> None:
    with pytest.raises(TickwheelError, match=r"refused the call: .*out of range"):
        Tickwheel(f"{private.url}?db=99")

    async def opened() -> None:
        async with aio.Tickwheel(f"{private.url}?db=99"):
            pass

    with pytest.raises(TickwheelError, match=r"refused the call: .*out of range"):
        asyncio.run(opened())


def test_the_rights_printed_by_acl_suffice_for_a_program_that_uses_every_operation(
    private: PrivateServer, admin: Any
) -> None:
    rights = {part for user in users("tw") for part in user.rule.split() if part[0] in "~&+"}
    admin.execute_command("ACL", "SETUSER", "least", "on", ">not-to-be-read", *sorted(rights))
    url = url_of(private, "least", "not-to-be-read")
    with Tickwheel(url, drive=True) as tickwheel, ThreadPoolExecutor() as threads:
        child = tickwheel._processes._child
        assert child is not None
        eventually(lambda: child.pid is not None, "the client drives")
        assert b"not-to-be-read" not in Path(f"/proc/{child.pid}/cmdline").read_bytes() + repr(tickwheel).encode()
        queue = tickwheel.create_queue("jobs", forecast=True)
        waiting = threads.submit(queue.dequeue, wait=timedelta(seconds=20))
        queue.enqueue(bytes(2_000), delay=timedelta(milliseconds=1), metadata={"a": "b"})
        [message] = waiting.result(timeout=30)
        message.extend(HOUR)
        message.fail(retry_in=HOUR)
        queue.reschedule(message.id, delay=timedelta(0))
        eventually(lambda: queue.counts()["pending"], "the event process files and promotes")
        assert queue.depth({"a": "b"}) == 1
        assert queue.explain(message.id)
        assert list(queue.messages())
        queue.cancel(message.id)
        for checked in (["doctor"], ["queue", "list"], ["forecast", "jobs"]):
            assert CliRunner().invoke(app, [*checked, "--url", url]).exit_code == 0
    # An administrator attests the server, because no user of `tickwheel acl` may run CONFIG GET.
    assert CliRunner().invoke(app, ["doctor", "--attest", "--quick", "--url", private.url]).exit_code == 0
    Tickwheel(url, durability="fsync").close()


def test_a_dequeue_without_the_right_to_subscribe_is_forbidden_and_does_not_wait(
    private: PrivateServer, admin: Any
) -> None:
    admin.execute_command("ACL", "SETUSER", "deaf", "on", ">p", "~*", "allchannels", "+@all")
    with Tickwheel(url_of(private, "deaf", "p")) as tickwheel:
        queue = tickwheel.create_queue("jobs")
        admin.execute_command("ACL", "SETUSER", "deaf", "resetchannels")
        for _ in range(2):
            with pytest.raises(Forbidden, match="the server refused this user"):
                queue.dequeue(wait=HOUR)
        # The right is granted while the program runs.
        admin.execute_command("ACL", "SETUSER", "deaf", "allchannels")
        eventually(lambda: waits(queue), "the client is subscribed again")

    async def dequeue() -> None:
        async with aio.Tickwheel(url_of(private, "deaf", "p")) as tickwheel:
            queue = tickwheel.queue("jobs")
            admin.execute_command("ACL", "SETUSER", "deaf", "resetchannels")
            for _ in range(2):
                with pytest.raises(Forbidden, match="the server refused this user"):
                    await queue.dequeue(wait=HOUR)

    asyncio.run(dequeue())


def test_a_waiting_dequeue_is_forbidden_when_the_right_to_subscribe_is_withdrawn(
    private: PrivateServer, admin: Any
) -> None:
    admin.execute_command("ACL", "SETUSER", "deaf", "on", ">p", "~*", "allchannels", "+@all")
    with Tickwheel(url_of(private, "deaf", "p")) as tickwheel, ThreadPoolExecutor() as threads:
        waiting = threads.submit(tickwheel.create_queue("jobs").dequeue, wait=HOUR)
        eventually(lambda: admin.execute_command("PUBSUB", "SHARDCHANNELS"), "the subscription is confirmed")
        # The server closes connections that are subscribed to forbidden channels.
        admin.execute_command("ACL", "SETUSER", "deaf", "resetchannels")
        with pytest.raises(Forbidden):
            waiting.result(timeout=30)


def waits(queue: Queue) -> bool:
    """Return whether a waiting dequeue returns no messages instead of an error."""
    try:
        return queue.dequeue(wait=timedelta(milliseconds=1)) == []
    except Forbidden:
        return False


@pytest.mark.parametrize(
    ("name", "value"),
    [("appendfsync", "everysec"), ("appendfsync", "no"), ("appendonly", "no"), ("no-appendfsync-on-rewrite", "yes")],
)
def test_durability_fsync_requires_a_server_that_writes_before_it_replies(
    private: PrivateServer, admin: Any, name: str, value: str
) -> None:
    fit = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}
    for setting in (fit | {name: value}).items():
        admin.config_set(*setting)
    with pytest.raises(NotDurable, match=f"this server has {name} {value}: run `CONFIG SET {name} {fit[name]}`"):
        Tickwheel(private.url, durability="fsync")
    assert admin.dbsize() == 0
    Tickwheel(private.url, durability="memory").close()
    admin.config_set(name, fit[name])
    Tickwheel(private.url, durability="fsync").close()
    # The server refuses to stop while it writes its first append-only file.
    eventually(lambda: not admin.info("persistence")["aof_rewrite_in_progress"], "the append-only file is complete")


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
def test_a_server_that_evicts_is_refused(private: PrivateServer, admin: Any, policy: str) -> None:
    admin.config_set("maxmemory-policy", policy)
    # Without a memory limit the server never evicts.
    Tickwheel(private.url, namespace="unlimited").close()
    admin.config_set("maxmemory", "100mb")
    with pytest.raises(NotDurable, match=rf"evicts keys, .*maxmemory-policy {policy}.*set it to noeviction"):
        Tickwheel(private.url)
    assert not list(admin.scan_iter(match="tw:*"))
    admin.config_set("maxmemory-policy", "noeviction")
    Tickwheel(private.url).close()


def test_every_primary_of_a_cluster_is_checked(redis_cluster: RedisCluster) -> None:
    for slot in (0, 8_000, 16_000):
        with redis_cluster.primary_of(slot).client() as one:
            one.config_set("maxmemory", "1gb")
            one.config_set("maxmemory-policy", "allkeys-lru")
            try:
                with pytest.raises(NotDurable, match="evicts keys"):
                    Tickwheel(redis_cluster.url, namespace="checked")
            finally:
                one.config_set("maxmemory", "0")
                one.config_set("maxmemory-policy", "noeviction")
