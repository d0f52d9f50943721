"""`tickwheel import celery` moves the calls in Celery's Redis, each once; calls that cannot be moved stay."""

import json
import os
import random
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from math import inf, nan
from typing import Any

import pytest
from celery import chain

from tests.integration.migration import shop
from tests.integration.migration.conftest import BROKER, ROOT, Shop, nested
from tests.support.wait_until import eventually

pytestmark = pytest.mark.integration


def command(deployment: Shop, *options: str) -> list[str]:
    where = ["--url", deployment.url, "--namespace", deployment.namespace, "--json"]
    return [sys.executable, "-m", "tickwheel", "import", "celery", "--from", deployment.broker_url, *where, *options]


def import_(deployment: Shop, *options: str, code: int = 0) -> list[dict[str, Any]]:
    """Return the report of the import for each queue."""
    done = subprocess.run(
        command(deployment, *options), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr, done.stderr
    reports: list[dict[str, Any]] = json.loads(done.stdout) if done.stdout else []
    return reports


def left(deployment: Shop) -> list[bytes]:
    """Return the keys of Celery's Redis that hold messages."""
    return [key for key in deployment.broker.keys("*") if not key.startswith(b"_kombu")]


def test_waiting_calls_are_moved_with_their_times_and_order_and_run(deployment: Shop) -> None:
    low = shop.note.apply_async(("low",), priority=9).id
    first, second = shop.note.delay("first").id, shop.note.delay("second").id
    later = shop.note.apply_async(("later",), countdown=3_600).id
    naive = shop.note.apply_async(("naive",), eta=datetime(2030, 6, 1, 12)).id  # noqa: DTZ001  # some applications write naive times
    expired = shop.note.apply_async(("expired",), expires=0.001).id
    [report] = import_(deployment)
    assert report == {"queue": "celery", "moved": 6, "there_before": 0, "refused": []}
    assert left(deployment) == []
    queue = deployment.tickwheel.queue("celery")
    assert abs(queue.get(later).due - datetime.now(UTC) - timedelta(hours=1)) < timedelta(seconds=30)
    assert queue.get(naive).due == datetime(2030, 6, 1, 12, tzinfo=UTC)
    with deployment.event_process(), deployment.tickwheel_worker():
        deployment.wait_until_run([first, second, low])
    assert [line[2] for line in deployment.record] == [first, second, low]
    assert queue.get(expired).state == "completed"


def test_an_import_into_a_namespace_that_nobody_drives_has_a_warning(deployment: Shop) -> None:
    shop.note.delay("x")
    done = subprocess.run(command(deployment), cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert f"warning: no event process drives namespace '{deployment.namespace}'" in done.stderr


def test_the_key_prefix_of_a_broker_is_used(deployment: Shop) -> None:
    options = shop.celery.conf.broker_transport_options
    shop.celery.conf.broker_transport_options = {**options, "global_keyprefix": "shop:"}
    try:
        sent = shop.note.delay("x").id
    finally:
        shop.celery.conf.broker_transport_options = options
    assert deployment.broker.llen("shop:celery") == 1
    [report] = import_(deployment, "--key-prefix", "shop:", "--to", "elsewhere")
    assert (report["moved"], deployment.broker.llen("shop:celery")) == (1, 0)
    assert deployment.tickwheel.queue("elsewhere").get(sent).state == "pending"


def test_the_url_of_a_broker_can_be_passed_by_the_environment(deployment: Shop) -> None:
    shop.note.delay("x")
    words = command(deployment, "--dry-run")
    at = words.index("--from")
    del words[at : at + 2]
    for variable, code in (("", 2), (deployment.broker_url, 0)):
        environment = os.environ | {"TICKWHEEL_FROM": variable}
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, done
        assert ("TICKWHEEL_FROM" in done.stderr) == (code == 2)
    assert json.loads(done.stdout)[0]["moved"] == 1


def test_a_dry_run_moves_nothing(deployment: Shop) -> None:
    ids = [shop.note.delay(str(n)).id for n in range(3)]
    before = deployment.broker.lrange("celery", 0, -1)
    [report] = import_(deployment, "--dry-run")
    assert report["moved"] == len(ids)
    assert deployment.broker.lrange("celery", 0, -1) == before
    assert deployment.tickwheel.queues() == []


def test_a_queue_without_messages_is_named_and_not_created(deployment: Shop) -> None:
    shop.note.delay("x")
    for options in (["--dry-run"], []):
        done = subprocess.run(
            command(deployment, "--queue", "nosuch", *options), cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert (done.returncode, json.loads(done.stdout)[0]["moved"]) == (0, 0)
        assert "the broker has no messages in 'nosuch'; is the name right?" in done.stderr
    assert list(deployment.tickwheel.queues()) == []
    assert import_(deployment)[0]["moved"] == 1
    assert deployment.tickwheel.queue("celery").config().payload_limit == 262_144


def test_calls_that_cannot_be_moved_are_named_and_stay(deployment: Shop) -> None:
    pickled = shop.note.apply_async(("x",), serializer="pickle").id
    yaml = shop.note.apply_async(("x",), serializer="yaml").id
    linked = shop.note.apply_async(("x",), link=shop.note.s()).id
    chain(shop.note.si("x"), shop.note.si("y")).delay()
    packed = shop.note.apply_async(("x" * 99,), compression="zlib").id
    large = shop.note.delay("x" * 300_000).id
    deployment.broker.lpush(
        "celery", b"\xffnonsense", b"{}", b"[1]", b'{"headers": 1, "properties": 2, "content-type": 3}'
    )
    deep = '{"headers":' + '{"a":' * 5_000 + "1" + "}" * 5_001
    body = json.dumps({"headers": {"task": "t", "id": "deep"}, "properties": {}, "content-type": "application/json"})
    deployment.broker.lpush("celery", deep, f'{body[:-1]}, "body": "{"[" * 5_000}"}}')
    stay = deployment.broker.lrange("celery", 0, -1)
    moved_deployment = shop.note.delay("moved").id
    for _ in range(2):
        [report] = import_(deployment, code=1)
        assert deployment.broker.lrange("celery", 0, -1) == stay
    assert report["moved"] == 0
    assert deployment.tickwheel.queue("celery").get(moved_deployment).state == "pending"
    reasons = {refusal["id"]: f"{refusal['task']} {refusal['reason']}" for refusal in report["refused"]}
    assert len(report["refused"]) == len(stay) == 12
    assert reasons[pickled].startswith("shop.note its content type is application/x-python-serialize, and only")
    assert "application/x-yaml" in reasons[yaml]
    assert "callbacks" in reasons[linked]
    assert "compressed" in reasons[packed]
    assert "bytes" in reasons[large]
    assert "nested too deeply" in reasons["deep"]
    assert any("chain" in reason for reason in reasons.values())


def test_a_call_with_an_impossible_priority_stays_and_the_calls_behind_it_are_moved(deployment: Shop) -> None:
    shop.note.delay("x")
    [raw] = deployment.broker.lrange("celery", 0, -1)
    deployment.broker.delete("celery")
    message = json.loads(raw)
    for priority in (256, -1, 3_000_000, 10**400, inf, nan, "x", [1]):
        message["headers"]["id"] = f"priority {priority}"[:20]
        message["properties"]["priority"] = priority
        deployment.broker.lpush("celery", json.dumps(message))
    behind = shop.note.delay("behind").id

    [report] = import_(deployment, code=1)

    assert deployment.tickwheel.queue("celery").get(behind).state == "pending"
    assert (report["moved"], deployment.broker.llen("celery")) == (1, 8)
    for refusal in report["refused"]:
        assert refusal["id"].startswith("priority ")
        assert refusal["task"] == "shop.note"
        assert "only 0 to 255 are allowed" in refusal["reason"]


def message(id_: str, body: str = "[[], {}, {}]", **headers: Any) -> dict[str, Any]:
    """Return a message as Celery writes it."""
    return {
        "headers": {"task": "shop.note", "id": id_, **headers},
        "properties": {},
        "content-type": "application/json",
        "body": body,
    }


def push(deployment: Shop, *messages: dict[str, Any]) -> None:
    deployment.broker.lpush("celery", *map(json.dumps, messages))


def test_nested_calls_stay_at_every_depth_and_the_calls_behind_them_are_moved(deployment: Shop) -> None:
    """At some of these depths, Python can decode the message in one place, and not encode it in another."""
    depths = [90, 150, *range(880, 1_000)]
    for n in depths:
        push(deployment, message(f"headers {n}", x=0))
        [raw] = deployment.broker.lrange("celery", 0, 0)
        deep = b"[" * n + b"]" * n
        deployment.broker.lset("celery", 0, raw.replace(b'"x": 0', b'"x": ' + deep))
        push(deployment, message(f"body {n}", f"[[{deep.decode()}], {{}}, {{}}]"))
    push(deployment, message("behind"))
    for _ in range(2):
        reports = import_(deployment, code=1)
    [report] = reports
    assert {refusal["id"] for refusal in report["refused"]} >= {f"body {n}" for n in depths[1:]}
    assert all("nested too deeply" in refusal["reason"] for refusal in report["refused"])
    assert len(report["refused"]) == 2 * (len(depths) - 1)
    assert left(deployment) == [b"celery"]
    queue = deployment.tickwheel.queue("celery")
    assert sorted(view.id for view in queue.messages()) == ["behind", "body 90", "headers 90"]


def test_messages_that_an_import_took_and_cannot_move_return_to_celery(deployment: Shop) -> None:
    """An import of an earlier version, or another program, can have left any message among those that it took."""
    deep = json.dumps(message("deep", x=nested(150)))
    held = [b"\xff", b"[]", deep.encode(), f'[{deep}, "", "celery"]'.encode()]
    deployment.broker.rpush("tickwheel:importing:celery", *held)
    push(deployment, message("behind"))
    [report] = import_(deployment, code=1)
    assert report["moved"] == 1
    assert left(deployment) == [b"celery"]
    returned = deployment.broker.lrange("celery", 0, -1)[::-1]
    assert [*returned[:2], *map(json.loads, returned[2:])] == [*held[:2], json.loads(deep), json.loads(deep)]


def test_a_call_with_a_header_that_is_not_json_stays(deployment: Shop) -> None:
    push(deployment, message("infinite", x=inf), message("behind"))
    [report] = import_(deployment, code=1)
    assert [refusal["id"] for refusal in report["refused"]] == ["infinite"]
    assert "not JSON compliant" in report["refused"][0]["reason"]
    assert report["moved"] == 1


def test_of_two_different_calls_with_one_id_the_older_is_moved_and_the_other_stays(deployment: Shop) -> None:
    older, retried = message("one", '[["a"], {}, {}]'), message("one", '[["b"], {}, {}]', retries=1)
    # Redis delivered the older call twice, so the delivery tags differ.
    push(deployment, older, retried, older | {"properties": {"delivery_tag": "again"}})
    [report] = import_(deployment, code=1)
    assert (report["moved"], report["there_before"]) == (1, 1)
    assert [refusal["reason"] for refusal in report["refused"]] == ["Tickwheel has another message with this id"]
    assert [json.loads(raw) for raw in deployment.broker.lrange("celery", 0, -1)] == [retried]
    assert left(deployment) == [b"celery"]
    assert b'[\\"a\\"]' in deployment.tickwheel.queue("celery").get("one").payload


def test_options_that_no_message_can_have_are_refused_before_a_message_is_taken(deployment: Shop) -> None:
    deployment.tickwheel.create_queue("single", exclusive_key="user")
    push(deployment, message("one"))
    for options in (["--max-attempts", "0"], ["--to", "single"]):
        assert import_(deployment, *options, code=2) == []
        assert left(deployment) == [b"celery"]


def test_a_call_whose_id_belongs_to_another_message_stays(deployment: Shop) -> None:
    deployment.tickwheel.queue("celery").enqueue(b"other", id="taken")
    shop.note.apply_async(("x",), task_id="taken")
    other = shop.note.delay("y").id
    [report] = import_(deployment, code=1)
    assert (report["moved"], [refusal["id"] for refusal in report["refused"]]) == (1, ["taken"])
    assert deployment.broker.llen("celery") == 1
    assert left(deployment) == [b"celery"]
    assert deployment.tickwheel.queue("celery").get(other).state == "pending"


def test_calls_reserved_by_celery_workers_are_moved_once_the_workers_are_gone(deployment: Shop) -> None:
    etas = [shop.note.apply_async((str(n),), countdown=3_600).id for n in range(5)]
    with deployment.celery_worker("--prefetch-multiplier", "0") as worker:
        eventually(lambda: deployment.broker.hlen("unacked") == len(etas), "the worker holds the calls", 40)
        waiting = shop.note.apply_async(("waiting",), queue="later").id
        assert import_(deployment, "--unacked", code=1) == []
        worker.send_signal(signal.SIGKILL)
        worker.wait(20)
    [report] = import_(deployment, "--dry-run", "--unacked")
    assert report["moved"] == len(etas)
    reports = import_(deployment, "--unacked", "--queue", "celery", "--queue", "later")
    assert [report["moved"] for report in reports] == [len(etas), 1]
    assert left(deployment) == []
    assert {deployment.tickwheel.queue("celery").get(id_).state for id_ in etas} == {"invisible"}
    assert deployment.tickwheel.queue("later").get(waiting).state == "pending"


def test_old_entries_of_unacked_are_moved_or_named_and_never_returned_to_their_queue(deployment: Shop) -> None:
    """Without workers, nothing may move a message but the import: kombu would return old ones to their queue."""
    entries = {"good": json.dumps([message("a"), "", "celery"]), "bad": b"\xff\xfejunk", "deep": "[" * 5_000}
    deployment.broker.hset("unacked", mapping=entries)
    # For kombu, the workers have held the messages for longer than an hour.
    deployment.broker.zadd("unacked_index", dict.fromkeys(entries, 1))
    [report] = import_(deployment, "--dry-run", "--unacked", code=1)
    assert report["moved"] == 1
    assert deployment.broker.hlen("unacked") == 3
    assert deployment.broker.llen("celery") == 0
    [report] = import_(deployment, "--unacked", code=1)
    assert report["moved"] == 1
    assert sorted(skipped["reason"].partition(" is not")[0] for skipped in report["refused"]) == [
        "the entry b'bad' of the hash 'unacked'",
        "the entry b'deep' of the hash 'unacked'",
    ]
    assert sorted(deployment.broker.hkeys("unacked")) == [b"bad", b"deep"]
    assert sorted(deployment.broker.zrange("unacked_index", 0, -1)) == [b"bad", b"deep"]


def test_an_import_that_is_killed_repeatedly_moves_every_message_once(deployment: Shop) -> None:
    ids = [shop.note.delay(str(n)).id for n in range(800)]
    ids += [shop.note.apply_async((str(n),), countdown=3_600).id for n in range(200)]
    seed = int(os.environ["TICKWHEEL_TEST_SEED"])
    chance, kills = random.Random(seed), 0
    queue = deployment.tickwheel.create_queue("celery", payload_limit=262_144)
    for _ in range(3):
        moved_deployment = sum(queue.counts().values())
        process = subprocess.Popen(command(deployment), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # At a random point after the first message.
        further = moved_deployment + chance.randint(1, 250)
        eventually(lambda: sum(queue.counts().values()) >= further or process.poll() is not None, "it moves", 40, 0)  # noqa: B023
        kills += process.poll() is None
        process.kill()
        process.wait()
    [report] = import_(deployment)
    assert report["refused"] == []
    assert kills >= 1, f"seed {seed}"
    assert sorted(message.id for message in queue.messages()) == sorted(ids)
    assert {message.attempt for message in queue.messages()} == {0}
    assert left(deployment) == []


def test_celery_workers_may_continue_while_their_queue_is_moved(deployment: Shop) -> None:
    ids = [shop.note.delay(str(n)).id for n in range(600)]
    with deployment.celery_worker():
        reports = [import_(deployment) for _ in range(2)]
        eventually(lambda: not deployment.broker.llen("celery"), "the queue is empty", 40)
    with deployment.tickwheel_worker():
        deployment.wait_until_run(ids)
    assert all(len(sides) == 1 for sides in deployment.ran(*ids).values()), reports


REFUSED: list[tuple[list[str], int, str]] = [
    (["--from", "redis://127.0.0.1:1"], 3, "Celery's broker does not answer"),
    (["--from", "amqp://guest@localhost"], 2, "--from is not a Redis URL"),
]


@pytest.mark.parametrize(("options", "code", "text"), REFUSED, ids=["unreachable", "not Redis"])
def test_wrong_options_are_refused_in_one_line(deployment: Shop, options: list[str], code: int, text: str) -> None:
    done = subprocess.run(
        [*command(deployment), *options], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code
    assert text in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_id_of_a_message_that_stays_is_printed_on_one_line(deployment: Shop) -> None:
    push(deployment, message("one\n  two \x1b[2J", x=inf))
    words = [word for word in command(deployment) if word != "--json"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    [line, end] = done.stderr.splitlines()
    assert line.startswith("  one\\n  two \\x1b[2J shop.note: ")
    assert end == "tickwheel: stay in Celery: 1 message"


def test_the_user_in_celerys_form_of_a_socket_url_logs_in(deployment: Shop) -> None:
    url = deployment.celery_url(BROKER).replace("://", "://nobody:secret@")
    words = [*command(deployment), "--from", url]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "invalid username-password pair" in done.stderr
