"""Whether a worker or a service may drive a namespace as a last resort, from what the server answers."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tickwheel.client.last_resort import find_obstacle_of_settings
from tickwheel.client.settings import ClientSettings
from tickwheel.errors import DataLoss, Forbidden, Unavailable
from tickwheel.model.queue_config import QueueConfig
from tickwheel.model.served_topics import ServedTopics
from tickwheel.operations.context import NamespaceContext
from tickwheel.operations.driving.obstacles import Obstacle, find_obstacle, find_sink
from tickwheel.plan import Plan, Reply, Request, Round
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
    former: Mapping[int, bytes] | None = None,
    queues: Mapping[bytes, QueueConfig] | None = None,
    denied: Mapping[str, list[bytes]] | None = None,
    topics: ServedTopics | None = None,
    forbidden: str = "",
    damaged: str = "",
    stored_rows: Mapping[bytes, bytes] | None = None,
) -> str:
    """Run the plan on a server with these values, and return the text of the obstacle.

    ``kinds``: the kind of election and the mark of an embedded server, by shard. ``former``: the kind before a reset of
    the epoch, by shard. ``denied``: the replies of the scripts that check permissions. ``forbidden``: the key that the
    user may not read. ``damaged``: the key with another type. ``stored_rows``: further rows of queues, as bytes.
    ``topics`` are those of the plan.
    """
    answers: dict[str, Any] = {namespace_key("tw"): namespace}
    for shard in range(2):
        kind, embedded = (kinds or {}).get(shard, (None, None))
        answers[shard_key("tw", shard, "clock")] = [kind, (former or {}).get(shard), embedded]
    rows = [(name, bytes(_PREFIX_BYTES) + config.to_bytes()) for name, config in (queues or {}).items()]
    rows += (stored_rows or {}).items()
    answers[queues_key("tw")] = [part for row in rows for part in row]
    if damaged:
        answers[damaged] = DataLoss(f"the key {damaged} is no hash")

    def answer(request: Request) -> Reply:
        if isinstance(request.call, Call):
            return Reply((denied or {}).get(request.call.script.name, []))
        assert request.command is not None
        key = str(request.command[1])
        if key == forbidden:
            raise Forbidden(f"no permission for {key}")
        if isinstance(answers[key], Exception):
            raise answers[key]
        return Reply(answers[key])

    found, rounds = run(find_obstacle(NamespaceContext("tw"), "lease", topics=topics), answer)
    assert damaged or rounds <= 3
    return "" if found is None else found.text


def run(plan: Plan[Obstacle | None], answer: Callable[[Request], Reply]) -> tuple[Obstacle | None, int]:
    """Run the plan. Return its result, and the number of its rounds."""
    rounds = 0
    step = next(plan)
    try:
        while True:
            assert isinstance(step, Round)
            rounds += 1
            try:
                replies = [answer(request) for request in step.requests]
            except (DataLoss, Forbidden, Unavailable) as error:
                step = plan.throw(error)
            else:
                step = plan.send(replies)
    except StopIteration as end:
        return end.value, rounds


def test_a_namespace_without_kafka_may_be_driven() -> None:
    assert obstacle() == ""
    assert obstacle(kinds={0: (b"lease", None), 1: (b"", None)}, queues={b"q": QueueConfig()}) == ""


def test_a_missing_namespace_is_not_driven() -> None:
    assert obstacle(namespace=[None] * 7) == "the namespace does not exist"


def test_a_namespace_that_is_being_deleted_is_not_driven() -> None:
    assert obstacle(namespace=[b"2", b"0", *NAMESPACE[2:]]) == "the namespace is being deleted"


def test_a_namespace_that_relays_its_history_needs_kafka() -> None:
    relayed = [*NAMESPACE[:2], b"relay", *NAMESPACE[3:]]
    assert "relayed to Kafka, and this program has no Kafka brokers (the option --kafka" in obstacle(namespace=relayed)
    assert obstacle(namespace=relayed, topics=ServedTopics("transitions")) == ""


def test_a_queue_with_a_sink_needs_kafka() -> None:
    queues = {b"plain": QueueConfig(), b"forwarded": QueueConfig(sink="kafka://topic")}
    assert "queue 'forwarded' delivers to a sink, and this program has no Kafka brokers" in obstacle(queues=queues)
    assert obstacle(queues=queues, topics=ServedTopics("transitions")) == ""


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("mail.sent", ""),
        ("reports", "no pattern of --sink-topics permits the topic reports of the sink: mail.*, t*"),
        ("transitions", "the topic transitions of the sink is the topic of the transitions (--topic)"),
    ],
)
def test_a_sink_whose_topic_the_program_does_not_serve_is_an_obstacle(topic: str, reason: str) -> None:
    topics = ServedTopics("transitions", ("mail.*", "t*"))
    config = QueueConfig(sink=f"kafka://{topic}")
    text = f"queue 'forwarded' delivers to a sink, and {reason}" if reason else ""
    assert obstacle(queues={b"a": QueueConfig(sink="kafka://timers"), b"forwarded": config}, topics=topics) == text
    found, rounds = run(
        find_sink(NamespaceContext("tw"), ["forwarded"], topics=topics), lambda _: Reply([stored(config)])
    )
    assert (found, rounds) == (Obstacle(text, "forwarded") if text else None, 1)


def test_with_kafka_a_sink_with_an_invalid_url_is_no_obstacle_and_hides_no_other() -> None:
    topics = ServedTopics("transitions", ("mail.*",))
    queues = {b"damaged": QueueConfig(sink="amqp://x"), b"empty": QueueConfig(sink="kafka://")}
    assert obstacle(queues=queues, topics=topics) == ""
    assert "queue 'damaged' delivers to a sink" in obstacle(queues=queues)
    queues[b"forwarded"] = QueueConfig(sink="kafka://reports")
    assert "queue 'forwarded' delivers to a sink" in obstacle(queues=queues, topics=topics)


@pytest.mark.parametrize("kind", ["zookeeper", "lockfile", "later"])
def test_a_shard_of_another_kind_of_election_is_not_driven(kind: str) -> None:
    text = obstacle(kinds={0: (b"lease", None), 1: (kind.encode(), None)})
    assert f"shard 1 have an election of the kind '{kind}'" in text
    assert ("tickwheel events" in text) == (kind == "lockfile")


def test_the_shards_of_zookeeper_are_left_to_event_processes_after_a_reset_of_the_epochs() -> None:
    text = obstacle(former={1: b"zookeeper"})
    assert "shard 1 had an election of the kind 'zookeeper' before `tickwheel shards reset-epoch`" in text
    assert obstacle(former={1: b"zookeeper"}, kinds={1: (b"lease", None)}) == ""


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
    assert (found is None) == (not text)
    assert found is None or text in found.text


def test_a_row_of_a_queue_that_cannot_be_read_is_no_obstacle_and_hides_no_sink() -> None:
    damaged = {b"damaged": b"of another program", b"\xff": b"\xff"}
    assert obstacle(stored_rows=damaged) == ""
    sink = {b"forwarded": QueueConfig(sink="kafka://topic")}
    assert "queue 'forwarded' delivers to a sink" in obstacle(queues=sink, stored_rows=damaged)


def test_a_shard_whose_claim_has_another_type_is_no_obstacle_and_hides_no_other() -> None:
    key = shard_key("tw", 0, "clock")
    assert obstacle(damaged=key) == ""
    assert "election of the kind 'zookeeper'" in obstacle(damaged=key, kinds={1: (b"zookeeper", None)})
    assert "such as XREAD STREAMS" in obstacle(damaged=key, denied={"check_leader_permissions": [b"XREAD STREAMS"]})


def test_a_namespace_whose_queues_have_another_type_is_an_obstacle() -> None:
    assert obstacle(damaged=queues_key("tw")) == f"the key {queues_key('tw')} is no hash"


def test_a_namespace_that_this_version_cannot_read_is_an_obstacle() -> None:
    assert "this version reads 2" in obstacle(namespace=[b"3", *NAMESPACE[1:]])
    assert "its field 'shards' is b'many'" in obstacle(namespace=[b"2", b"many", *NAMESPACE[2:]])


def test_a_server_that_does_not_answer_is_no_obstacle() -> None:
    def answer(request: Request) -> Reply:
        raise Unavailable("no answer")

    with pytest.raises(Unavailable):
        run(find_obstacle(NamespaceContext("tw"), "lease", topics=None), answer)


def stored(config: QueueConfig) -> bytes:
    return bytes(_PREFIX_BYTES) + config.to_bytes()


def test_only_the_rows_of_changed_queues_are_read_for_sinks() -> None:
    rows = {"plain": stored(QueueConfig()), "forwarded": stored(QueueConfig(sink="kafka://topic")), "damaged": b"?"}

    def answer(request: Request) -> Reply:
        assert request.command is not None
        command, key, *names = request.command
        assert (command, key) == ("HMGET", queues_key("tw"))
        return Reply([rows.get(str(name)) for name in names])

    context = NamespaceContext("tw")
    assert run(find_sink(context, ["plain", "damaged", "deleted"], topics=None), answer) == (None, 1)
    found, rounds = run(find_sink(context, ["plain", "forwarded"], topics=None), answer)
    assert found is not None
    assert found.queue == "forwarded"
    assert "queue 'forwarded' delivers to a sink" in found.text
    assert rounds == 1
