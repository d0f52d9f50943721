"""A valid history of a run of the fault harness, which tests modify to plant violations."""

from collections.abc import Callable

from tests.fault.harness.call_log import OK, UNKNOWN, Call
from tests.fault.harness.load import EXCLUSIVE, VALUE_KEY, Afterwards, Load, PlannedMessage, plan_message
from tests.fault.harness.run_evidence import Claim, Evidence
from tickwheel.storage.record import State
from tickwheel.storage.transition import OutboxTransition

LOAD = Load(seed=1, seconds=1, values=1)
# The wall clock time at which the history starts.
START_MS = 1_000_000
QUEUES = {1: "plain", 2: EXCLUSIVE}


def _choose(fits: Callable[[PlannedMessage], bool]) -> PlannedMessage:
    return next(message for n in range(10_000) if fits(message := plan_message(LOAD, f"m-{n}")))


DELAYED = _choose(lambda m: m.queue == "plain" and m.delay_ms > 500 and m.afterwards is Afterwards.NOTHING)
FIRST = _choose(lambda m: m.queue == EXCLUSIVE and m.delay_ms == 0)
SECOND = _choose(lambda m: m.queue == EXCLUSIVE and m.delay_ms == 0 and m.id != FIRST.id)
CANCELLED = _choose(lambda m: m.queue == "plain" and m.afterwards is Afterwards.CANCEL)


def step(
    message: PlannedMessage,
    version: int,
    before: State | None,
    after: State | None,
    at: int,
    *,
    until: int = 0,
    attempt: int = 0,
    worker: str = "",
) -> OutboxTransition:
    born = before is None
    number = next(number for number, name in QUEUES.items() if name == message.queue)
    pairs = {} if message.value is None else {VALUE_KEY: message.value}
    return OutboxTransition(
        number, message.id, message.value, 7, version, before, after, START_MS + at, START_MS + until, attempt, worker,
        due_ms=START_MS + message.delay_ms if born else None, metadata=pairs if born else None,
    )  # fmt: skip


def lease_transitions(message: PlannedMessage, version: int, at: int, worker: str = "w") -> list[OutboxTransition]:
    """Return the transitions of a dequeue and of a complete 10 ms later."""
    return [
        step(message, version, State.PENDING, State.RUNNING, at, attempt=1, worker=worker),
        step(message, version + 1, State.RUNNING, State.COMPLETED, at + 10, attempt=1, worker=worker),
    ]


def worker_calls(message: PlannedMessage, version: int, at: float, worker: str = "w") -> list[Call]:
    """Return the same two calls as the worker has recorded them."""
    got = [[message.id, version, 1, message.value]]
    return [
        Call(worker, "dequeue", message.queue, [], at, None, at + 0.001, OK, got),
        Call(worker, "complete", message.queue, [message.id], at + 0.009, [version], at + 0.011, OK, {"lost": []}),
    ]


def valid_run() -> Evidence:
    """Return a valid run: two messages of one exclusive value in sequence, a delayed message, a cancelled message."""
    due = DELAYED.delay_ms
    transitions = [
        step(FIRST, 1, None, State.PENDING, 0),
        step(SECOND, 1, None, State.PENDING, 0),
        step(DELAYED, 1, None, State.INVISIBLE, 0, until=due),
        step(CANCELLED, 1, None, State.INVISIBLE, 0, until=CANCELLED.delay_ms),
        *lease_transitions(FIRST, 2, 10),
        *lease_transitions(SECOND, 2, 30),
        step(CANCELLED, 2, State.INVISIBLE, State.CANCELLED, 50),
        step(DELAYED, 2, State.INVISIBLE, State.PENDING, due),
        *lease_transitions(DELAYED, 3, due + 1),
    ]
    calls = [
        *(Call("p", "enqueue", m.queue, [m.id], 0.0, None, 0.001, OK, [True]) for m in (FIRST, SECOND, CANCELLED)),
        Call("p", "enqueue", "plain", [DELAYED.id], 0.0, None, 0.002, UNKNOWN, None),
        Call("p", "enqueue", "plain", [DELAYED.id], 0.1, None, 0.102, OK, [False]),
        Call("p", "cancel", "plain", [CANCELLED.id], 0.05, None, 0.051, OK, ["cancelled", 2, True]),
        *worker_calls(FIRST, 2, 0.01),
        *worker_calls(SECOND, 2, 0.03),
        *worker_calls(DELAYED, 3, due / 1000 + 0.001),
    ]
    ends = {FIRST.id: "completed", SECOND.id: "completed", DELAYED.id: "completed", CANCELLED.id: "cancelled"}
    claims = [(0, (1, 9), "a"), (1, (1, 3), "b"), (0, (2, 7), "b")]
    return Evidence(
        *(LOAD, calls, [transitions], QUEUES, ends),
        fences=[[(1, 1), (1, 2), (2, 1)]],
        claims=[[Claim(shard, fence, "zookeeper", owner) for shard, fence, owner in claims]],
        repeated=20,
        in_flight=20,
    )
