"""If a call accepts a hostile value, the stored result and the effect match the value to the byte and millisecond."""

import itertools
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.security.hostile_values import VALUES
from tickwheel import InvalidArgument, Message, NewMessage, Queue, Tickwheel
from tickwheel.testing import VirtualClock

pytestmark = pytest.mark.security

MS = timedelta(milliseconds=1)
HOUR = timedelta(hours=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST, LAST = (moment.replace(tzinfo=UTC) for moment in (datetime.min, datetime.max))  # noqa: DTZ901
Times = Callable[[datetime, Any], datetime]
ids = (f"m{n}" for n in itertools.count())
names = (f"q{n}" for n in itertools.count())


def up(duration: timedelta | float) -> timedelta:
    """Round up to whole milliseconds. A number is in seconds."""
    length = duration if isinstance(duration, timedelta) else timedelta(seconds=duration)
    return -(-length // MS) * MS


def moment_up(moment: datetime) -> datetime:
    return EPOCH + up(moment - EPOCH)


def deadline_of(now: datetime, deadline: Any) -> datetime:
    """Return the stored deadline: rounded down, so that it is never later, and limited to the range of datetime."""
    start, since = (now, deadline) if isinstance(deadline, timedelta) else (EPOCH, deadline - EPOCH)
    try:
        return start + since // MS * MS
    except OverflowError:
        return FIRST if since < timedelta() else LAST


class ValueEffects:
    """A namespace whose clock stands still, on which the checks observe the effect of each accepted value."""

    def __init__(self, tickwheel: Tickwheel, clock: VirtualClock) -> None:
        self.tickwheel = tickwheel
        self.clock = clock
        self.plain = tickwheel.create_queue("plain", max_attempts=1_000, forecast=True)
        self.own = tickwheel.create_queue("own", exclusive_key="of")

    @property
    def now(self) -> datetime:
        return self.clock.now

    def leased_message(self) -> Message:
        """Return a leased message of a new queue."""
        queue = self.tickwheel.create_queue(next(names), max_attempts=1_000)
        queue.enqueue(b"held")
        [message] = queue.dequeue()
        return message


def payload(effects: ValueEffects, value: Any) -> None:
    queue = effects.tickwheel.queue(next(names))
    result = queue.enqueue(value)
    wanted = str.encode(value) if isinstance(value, str) else bytes(value)
    assert queue.get(result.id).payload == wanted
    assert [message.payload for message in queue.dequeue()] == [wanted]


def json_(effects: ValueEffects, value: Any) -> None:
    queue = effects.tickwheel.queue(next(names))
    result = queue.enqueue(json=value)
    if value is None:
        assert queue.get(result.id).payload == b""
        return
    wanted = json.loads(json.dumps(value))
    assert queue.get(result.id).json() == wanted
    assert [message.json() for message in queue.dequeue()] == [wanted]


def priority(effects: ValueEffects, value: Any) -> None:
    view = effects.plain.get(effects.plain.enqueue(priority=value).id)
    assert view.due == effects.now
    assert view.deadline == effects.now - (value or 0) * timedelta(days=365)


def id_(effects: ValueEffects, value: Any) -> None:
    if value is None:
        assert effects.plain.enqueue().id != effects.plain.enqueue().id
        return
    queue = effects.tickwheel.queue(next(names))
    assert queue.enqueue(id=value).id == value == queue.get(value).id
    assert not queue.enqueue(id=value).created
    assert queue.enqueue(id="another").created == (value != "another")
    assert [message.id for message in queue.dequeue()] == [value]


def delay(effects: ValueEffects, value: Any) -> None:
    view = effects.plain.get(effects.plain.enqueue(delay=value).id)
    assert view.due == view.deadline == effects.now + up(value or timedelta())
    assert view.state == ("invisible" if view.due > effects.now else "pending")


def due(effects: ValueEffects, value: Any) -> None:
    view = effects.plain.get(effects.plain.enqueue(due=value).id)
    assert view.due == view.deadline == (effects.now if value is None else moment_up(value))
    assert view.state == ("invisible" if view.due > effects.now else "pending")


def deadline(effects: ValueEffects, value: Any) -> None:
    view = effects.plain.get(effects.plain.enqueue(deadline=value).id)
    assert view.due == effects.now
    assert view.deadline == (effects.now if value is None else deadline_of(effects.now, value))


def metadata(effects: ValueEffects, value: Any) -> None:
    queue = effects.tickwheel.queue(next(names))
    created = queue.enqueue(metadata=value)
    wanted = {} if value is None else dict(value.items())
    assert queue.get(created.id).metadata == wanted
    for key, item in wanted.items():
        assert queue.depth({key: item}) == 1
        assert queue.depth({key: item + "x"} if len(item.encode()) < 256 else {key: ""}) == 0
    assert [message.metadata for message in queue.dequeue(where=wanted)] == [wanted]


def exclusive_value(effects: ValueEffects, value: Any) -> None:
    name = next(ids)
    effects.own.enqueue(b"of", id=name, metadata={"of": value})
    assert effects.own.get(name, value).exclusive_value == value
    other = {"of": f"{value[:50]}, another"}
    assert effects.own.enqueue(b"other", id=name, metadata=other).created
    assert effects.own.get(name, value).payload == b"of"


def lease_of_message(effects: ValueEffects, value: Any) -> None:
    queue = effects.tickwheel.queue(next(names))
    queue.enqueue(lease=value)
    [message] = queue.dequeue()
    assert message.lease_until == effects.now + (timedelta(seconds=30) if value is None else up(value))


def max_attempts(effects: ValueEffects, value: Any) -> None:
    queue = effects.tickwheel.queue(next(names))
    queue.enqueue(id="m", max_attempts=value)
    attempts = 5 if value is None else value
    for attempt in range(1, attempts + 1):
        [message] = queue.dequeue()
        assert message.attempt == attempt
        assert message.fail(retry_in=timedelta(0)) == ("pending" if attempt < attempts else "errored")


def setting(name: str, meant: Callable[[Any], Any]) -> Callable[[ValueEffects, Any], None]:
    def check(effects: ValueEffects, value: Any) -> None:
        queue = effects.tickwheel.create_queue(next(names), **{name: value})
        assert getattr(queue.config(), name) == meant(value)

    return check


def duration_setting(
    name: str, default: timedelta, minimum: timedelta = timedelta()
) -> Callable[[ValueEffects, Any], None]:
    def check(effects: ValueEffects, value: Any) -> None:
        queue = effects.tickwheel.create_queue(next(names), **{name: value})
        wanted = max(default if value is None else up(value), minimum)
        assert getattr(queue.config(), f"{name}_ms") * MS == wanted

    return check


def limit(effects: ValueEffects, value: Any) -> None:
    queue = effects.tickwheel.queue(next(names))
    queue.enqueue_many(NewMessage() for _ in range(3))
    assert len(queue.dequeue(value)) == min(value, 3)


def where(effects: ValueEffects, value: Any) -> None:
    queue = effects.tickwheel.create_queue(next(names))
    assert queue.depth(value) == 0
    wanted = {} if value is None else dict(value.items())
    queue.enqueue(id="none")
    queue.enqueue(id="all", metadata=wanted, deadline=HOUR)
    assert queue.depth(value) == (1 if wanted else 2)
    assert [message.id for message in queue.dequeue(2, where=value)] == (["all"] if wanted else ["none", "all"])


def lease(effects: ValueEffects, value: Any) -> None:
    queue = effects.tickwheel.queue(next(names))
    queue.enqueue()
    [message] = queue.dequeue(lease=value)
    assert message.lease_until == effects.now + (timedelta(seconds=30) if value is None else up(value))


def worker(effects: ValueEffects, value: Any) -> None:
    queue = effects.tickwheel.queue(next(names))
    queue.enqueue(id="m")
    queue.dequeue(worker=value)
    assert (queue.explain("m").worker or "") == queue.get("m").worker == (value or "")


def request_id(effects: ValueEffects, value: Any) -> None:
    queue = effects.tickwheel.queue(next(names))
    queue.enqueue_many([NewMessage(), NewMessage()])
    first, second = queue.dequeue(request_id=value), queue.dequeue(request_id=value)
    assert ([message.token for message in first] == [message.token for message in second]) == (value is not None)


def fail_error(effects: ValueEffects, value: Any) -> None:
    message = effects.leased_message()
    message.fail(value)
    wanted = str.encode(value or "")[:1024].decode(errors="ignore")
    assert effects.tickwheel.queue(message.queue).get(message.id).error == wanted


def fail_retry_in(effects: ValueEffects, value: Any) -> None:
    message = effects.leased_message()
    state = message.fail(retry_in=value)
    view = effects.tickwheel.queue(message.queue).get(message.id)
    if value is None:
        assert view.until is not None
        assert effects.now < view.until <= effects.now + timedelta(seconds=1)
    elif up(value) <= timedelta():
        assert (state, view.until) == ("pending", None)
    else:
        assert (state, view.until) == ("invisible", effects.now + up(value))


def result(effects: ValueEffects, value: Any) -> None:
    message = effects.leased_message()
    message.complete(value)
    wanted = None if value is None else str.encode(value).decode()
    assert effects.tickwheel.queue(message.queue).get(message.id).result == wanted


def extend(effects: ValueEffects, value: Any) -> None:
    message = effects.leased_message()
    before = message.lease_until
    assert message.extend(value) == max(before, effects.now + up(value))
    assert effects.tickwheel.queue(message.queue).get(message.id).until == message.lease_until


def rescheduled(argument: str, meant: Times) -> Callable[[ValueEffects, Any], None]:
    def check(effects: ValueEffects, value: Any) -> None:
        name = effects.plain.enqueue(delay=HOUR, deadline=2 * HOUR).id
        arguments: dict[str, Any] = {argument: value}
        effects.plain.reschedule(name, **arguments)
        view = effects.plain.get(name)
        changed, other = (view.deadline, view.due) if argument == "deadline" else (view.due, view.deadline)
        assert changed == meant(effects.now, value)
        assert other == effects.now + (HOUR if argument == "deadline" else 2 * HOUR)

    return check


def forecast(effects: ValueEffects, value: Any) -> None:
    assert len(effects.plain.forecast(value)) == value


def blocked(operation: str) -> Callable[[ValueEffects, Any], None]:
    def check(effects: ValueEffects, value: Any) -> None:
        queue: Queue = effects.tickwheel.create_queue(next(names))
        arguments: dict[str, Any] = {operation: value}
        queue.block(**arguments)
        assert getattr(queue.config(), f"{operation}_blocked") is value
        other = "dequeue" if operation == "enqueue" else "enqueue"
        queue.block()
        queue.unblock(**arguments)
        config = queue.config()
        assert getattr(config, f"{operation}_blocked") is not value
        assert getattr(config, f"{other}_blocked") is False

    return check


def setting_name(effects: ValueEffects, value: Any) -> None:
    effects.tickwheel.set_setting(value, "on")
    assert effects.tickwheel.setting(value) == "on" == effects.tickwheel.settings()[str.__str__(value)]
    effects.tickwheel.set_setting(value, None)
    assert effects.tickwheel.setting(value) is None


def setting_value(effects: ValueEffects, value: Any) -> None:
    effects.tickwheel.set_setting("mail", value)
    assert effects.tickwheel.setting("mail") == value
    assert ("mail" in effects.tickwheel.settings()) == (value is not None)


CHECKS: dict[str, Callable[[ValueEffects, Any], None]] = {
    "enqueue payload": payload,
    "enqueue json": json_,
    "enqueue priority": priority,
    "enqueue id": id_,
    "enqueue delay": delay,
    "enqueue due": due,
    "enqueue deadline": deadline,
    "enqueue metadata": metadata,
    "enqueue exclusive value": exclusive_value,
    "enqueue lease": lease_of_message,
    "enqueue max_attempts": max_attempts,
    "create_queue exclusive_key": setting("exclusive_key", lambda value: value),
    "create_queue indexed": setting("indexed", lambda value: None if value is None else tuple(sorted(set(value)))),
    "create_queue lease": duration_setting("lease", timedelta(seconds=30)),
    "create_queue backoff": duration_setting("backoff", timedelta(seconds=1)),
    "create_queue backoff_max": duration_setting("backoff_max", timedelta(minutes=10)),
    "create_queue retention": duration_setting("retention", timedelta(minutes=10), timedelta(minutes=5)),
    "create_queue errored_retention": duration_setting("errored_retention", timedelta(days=7), timedelta(minutes=5)),
    "create_queue max_attempts": setting("max_attempts", lambda value: 5 if value is None else value),
    "create_queue payload_limit": setting("payload_limit", lambda value: 32 * 1024 if value is None else value),
    "create_queue forecast": setting("forecast", bool),
    "create_queue sink": setting("sink", lambda value: value or None),
    "set_setting name": setting_name,
    "set_setting value": setting_value,
    "dequeue limit": limit,
    "dequeue where": where,
    "dequeue lease": lease,
    "dequeue worker": worker,
    "dequeue request_id": request_id,
    "complete result": result,
    "fail error": fail_error,
    "fail retry_in": fail_retry_in,
    "extend duration": extend,
    "reschedule delay": rescheduled("delay", lambda now, value: now + up(value)),
    "reschedule due": rescheduled("due", lambda _, value: moment_up(value)),
    "reschedule deadline": rescheduled("deadline", deadline_of),
    "forecast minutes": forecast,
    "block enqueue": blocked("enqueue"),
    "block dequeue": blocked("dequeue"),
}


@pytest.mark.parametrize("argument", CHECKS)
def test_accepted_values_have_the_documented_effect(
    argument: str, tickwheel: Tickwheel, tickwheel_clock: VirtualClock
) -> None:
    effects, accepted = ValueEffects(tickwheel, tickwheel_clock), 0
    for value in VALUES:
        try:
            CHECKS[argument](effects, value)
        except InvalidArgument:
            continue
        except AssertionError as error:
            raise AssertionError(f"{argument} {value!r:.80}: {error}") from error
        accepted += 1
    assert accepted
