"""Whether a worker or a service may drive a namespace as a last resort, from what the server answers."""

from collections.abc import Mapping
from typing import Any

import pytest

from tickwheel.client.last_resort import find_obstacle_of_settings
from tickwheel.client.settings import ClientSettings
from tickwheel.errors import Forbidden
from tickwheel.model.queue_config import QueueConfig
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.driving.obstacles import find_obstacle
from tickwheel.plan import Reply, Request, Round
from tickwheel.storage.keys import namespace_key, queues_key, shard_key
from tickwheel.storage.scripts import Call

pytestmark = pytest.mark.unit

# The version, the uid and the number of a queue precede its stored settings.
_PREFIX_BYTES = 10
NAMESPACE = [b"2", b"2", b"capped", b"1", b"1000", b"262144", b"block"]


def obstacle(
    *,
    namespace: list[Any] = NAMESPACE,
    kinds: Mapping[int, tuple[bytes | None, bytes | None]] | None = None,
    queues: Mapping[bytes, QueueConfig] | None = None,
    denied: Mapping[str, list[bytes]] | None = None,
    has_kafka: bool = False,
    forbidden: str = "",
) -> str:
    """Run the plan on a server with these values, and return the obstacle.

    ``kinds``: the kind of election and the mark of an embedded server, by shard. ``denied``: the replies of the scripts
    that check permissions. ``forbidden``: the key that the user may not read.
    """
    answers: dict[str, Any] = {namespace_key("tw"): namespace}
    for shard in range(2):
        answers[shard_key("tw", shard, "clock")] = list((kinds or {}).get(shard, (None, None)))
    rows = [(name, bytes(_PREFIX_BYTES) + config.to_bytes()) for name, config in (queues or {}).items()]
    answers[queues_key("tw")] = [part for row in rows for part in row]

    def answer(request: Request) -> Reply:
        if isinstance(request.call, Call):
            return Reply((denied or {}).get(request.call.script.name, []))
        assert request.command is not None
        key = str(request.command[1])
        if key == forbidden:
            raise Forbidden(f"no permission for {key}")
        return Reply(answers[key])

    plan = find_obstacle(NamespaceContext("tw"), "lease", has_kafka=has_kafka)
    step = next(plan)
    try:
        while True:
            assert isinstance(step, Round)
            try:
                replies = [answer(request) for request in step.requests]
            except Forbidden as error:
                step = plan.throw(error)
            else:
                step = plan.send(replies)
    except StopIteration as end:
        return str(end.value)


def test_a_namespace_without_kafka_may_be_driven() -> None:
    assert obstacle() == ""
    assert obstacle(kinds={0: (b"lease", None), 1: (b"", None)}, queues={b"q": QueueConfig()}) == ""


def test_a_missing_namespace_is_not_driven() -> None:
    assert obstacle(namespace=[None] * 7) == "the namespace does not exist"


def test_a_namespace_that_is_being_deleted_is_not_driven() -> None:
    assert obstacle(namespace=[b"2", b"0", *NAMESPACE[2:]]) == "the namespace is being deleted"


def test_a_namespace_that_relays_its_history_needs_kafka() -> None:
    relayed = [*NAMESPACE[:2], b"relay", *NAMESPACE[3:]]
    assert "relayed to Kafka" in obstacle(namespace=relayed)
    assert obstacle(namespace=relayed, has_kafka=True) == ""


def test_a_queue_with_a_sink_needs_kafka() -> None:
    queues = {b"plain": QueueConfig(), b"forwarded": QueueConfig(sink="kafka://topic")}
    assert "queue 'forwarded' delivers to a sink" in obstacle(queues=queues)
    assert obstacle(queues=queues, has_kafka=True) == ""


@pytest.mark.parametrize("kind", ["zookeeper", "lockfile", "later"])
def test_a_shard_of_another_kind_of_election_is_not_driven(kind: str) -> None:
    text = obstacle(kinds={0: (b"lease", None), 1: (kind.encode(), None)})
    assert f"shard 1 have an election of the kind '{kind}'" in text
    assert ("tickwheel events" in text) == (kind == "lockfile")


def test_the_embedded_server_of_a_data_directory_is_not_driven() -> None:
    assert "embedded server" in obstacle(kinds={0: (b"lockfile", b"1")})
    assert "embedded server" in obstacle(kinds={1: (None, b"1")})


@pytest.mark.parametrize("script", ["check_permissions", "check_leader_permissions"])
def test_a_user_without_all_rights_of_a_leader_does_not_drive(script: str) -> None:
    assert "may not do all that a leader does, such as XREAD STREAMS" in obstacle(
        denied={script: [b"XREAD STREAMS", b"CLIENT SETNAME"]}
    )


def test_a_user_who_may_not_read_the_queues_does_not_drive() -> None:
    assert "may not do all that a leader does: no permission" in obstacle(forbidden=queues_key("tw"))


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis://127.0.0.1", ""),
        ("rediss://127.0.0.1", ""),
        ("unix:///run/redis.sock", ""),
        ("redis+cluster://127.0.0.1", "Redis Cluster"),
        ("grpc://127.0.0.1:7400", "service"),
    ],
)
def test_only_a_client_of_one_redis_server_may_drive(url: str, text: str) -> None:
    settings = ClientSettings.validate(url, "tw", None, None, False, None)
    found = find_obstacle_of_settings(settings)
    assert text in found
    assert bool(found) == bool(text)
