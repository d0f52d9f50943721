"""The second table of the page of the measurements: values from the details of the rows, with their spread."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from bench.harness.report import format_value

Figures = dict[str, dict[str, Any]]

# The values: the row whose details have the value, the keys of the value, its unit, and its label.
_VALUES: Final[tuple[tuple[str, tuple[str, ...], str, str], ...]] = (
    ("life", ("life_us",), "µs", "server CPU time for the life of a delayed message"),
    *(
        (
            "life_4_shards",
            ("life_us", count),
            "µs",
            f"server CPU time for a life on {shards}, with 100 messages in each shard's call",
        )
        for count, shards in (("1", "one shard"), ("4", "4 shards"), ("64", "64 shards"))
    ),
    *(
        (
            "life_4_shards",
            ("life_us_with_100_messages_over_all_shards", count),
            "µs",
            f"server CPU time for a life on {count} shards, with 100 messages in a call to all shards",
        )
        for count in ("4", "64")
    ),
    ("memory", ("dearest",), "bytes", "server memory for one delayed message, immediately after a doubling"),
    ("pairs", ("dearest",), "bytes", "server memory for one metadata pair, immediately after a doubling"),
    (
        "cancelled_retained",
        ("dearest",),
        "bytes",
        "server memory for one cancelled message during its retention, immediately after a doubling",
    ),
    ("empty", ("first_after_a_message",), "PING", "server CPU time of the first empty dequeue after a delivery"),
    *(
        (
            "empty",
            ("two_pairs_that_never_meet_in_1000_messages_us", kind),
            "µs",
            f"server CPU time of an empty dequeue that must search 1,000 messages, {queue}",
        )
        for kind, queue in (("plain", "on a queue that is not exclusive"), ("exclusive", "on an exclusive queue"))
    ),
    ("relay", ("own_cpu_us_per_transition",), "µs", "CPU time of the relay for a transition, enqueued in calls of 100"),
    (
        "relay_single",
        ("own_cpu_us_per_transition",),
        "µs",
        "CPU time of the relay for a transition, enqueued in calls of one message",
    ),
    ("service_enqueue", ("cpu_us_per_call", "server"), "µs", "CPU time of the service for an enqueue call"),
    ("service_enqueue", ("cpu_us_per_call", "client"), "µs", "CPU time of the client for an enqueue call"),
    ("service_enqueue_share", ("echo_per_s",), "calls/s", "rate of the gRPC server that only echoes requests"),
    ("service_enqueue_share", ("echo_cpu_us_per_call", "server"), "µs", "CPU time of the echo server for a call"),
    (
        "service_enqueue_share",
        ("echo_cpu_us_per_call", "client"),
        "µs",
        "CPU time of the client for a call of the echo",
    ),
    (
        "election_calls_4s",
        ("calls_of_drivers_per_s",),
        "calls/s",
        "calls of the drivers of 16 idle shards, mostly waits for the inboxes",
    ),
    ("election_calls_4s", ("memory_of_a_candidate_mb",), "MB", "memory of an idle `tickwheel events`, of 50"),
    ("election_connections_standby", ("memory_mb",), "MB", "memory of the child of a worker, which stands by"),
)
_DURABILITIES: Final = ("memory", "memory_aof", "fsync", "replica_1")


def further_values(figures: Figures) -> str:
    """Return the Markdown table, without rows that have no result, and sentences about the code of all rows."""
    lines = ["| value | lowest – highest |", "|---|---|"]
    for row, keys, unit, label in _VALUES:
        if row in figures:
            value = figures[row]["details"]
            for key in keys:
                value = value[key]
            lines.append(_line(label, value if isinstance(value, list) else [value], unit))
    lines += [*_durabilities(figures), *_calibrations(figures), *_timestone(figures)]
    return "\n".join([*lines, "", _dates(figures)]) + "\n"


def _line(label: str, values: Sequence[float], unit: str) -> str:
    low, high = format_value(min(values)), format_value(max(values))
    return f"| {label} | {low if low == high else f'{low} – {high}'} {unit} |"


def _durabilities(figures: Figures) -> Iterator[str]:
    for row in (figures.get(f"durability_{name}") for name in _DURABILITIES):
        if row is not None:
            # The label of the row is "time of an enqueue with …: median".
            what = row["what"].removesuffix(": median")
            rate = what.replace("time of an enqueue", "rate at which one client enqueues messages in calls of 100")
            yield _line(f"{what}: 99th percentile", row["details"]["p99_us"], "µs")
            yield _line(rate, row["details"]["enqueued_per_second_in_batches_of_100"], "messages/s")


def _calibrations(figures: Figures) -> Iterator[str]:
    zadds = [us for row in figures.values() for us in row["details"].get("zadd_us", [])]
    if zadds:
        yield _line("server CPU time for a `ZADD`, in all measurements that record it", zadds, "µs")


def _timestone(figures: Figures) -> Iterator[str]:
    if not {"timestone_enqueue", "timestone_dequeue"} <= figures.keys():
        return
    enqueue, dequeue = figures["timestone_enqueue"], figures["timestone_dequeue"]
    runs = list(zip(enqueue["samples"], dequeue["samples"], strict=True))
    met = sum(first <= enqueue["bar"] and second <= dequeue["bar"] for first, second in runs)
    yield f"| runs at Timestone's rates that met the goals of both latencies | {met} of {len(runs)} |"


def _dates(figures: Figures) -> str:
    days = sorted(row["measured"][:10] for row in figures.values())
    first, last = days[0], days[-1]
    text = f"The rows were measured on {first}." if first == last else f"The rows were measured from {first} to {last}."
    if old := sum(not row.get("commit") for row in figures.values()):
        text += f" The commit of {old} of the {len(figures)} rows was not recorded."
    if dirty := sum(row.get("dirty", False) for row in figures.values()):
        text += f" The code of {dirty} of the {len(figures)} rows had changes that were not committed."
    return text
