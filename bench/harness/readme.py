"""The measured values in the README, as sentences made from the results."""

import math
import textwrap
from typing import Any, Final

Figures = dict[str, dict[str, Any]]
_WIDTH: Final = 120


def readme_measurements(figures: Figures) -> str:
    """Return the Markdown lists of the README. All rows that the README mentions must have a result."""
    one = [_wrap(text) for text in _one_server(figures)]
    several = [_wrap(text) for text in _several_servers(figures)]
    return (
        "\n".join(
            [
                "With one server (the Valkey of the package) and one shard:",
                "",
                *one,
                "",
                "With several servers or processes:",
                "",
                *several,
            ]
        )
        + "\n"
    )


def _one_server(figures: Figures) -> list[str]:
    dearest = figures["memory"]["details"]["dearest"]
    return [
        f"One client enqueues {_value(figures, 'client_enqueue')} messages a second, in batches of 100. One client"
        f" dequeues and completes {_value(figures, 'client_finish')} a second.",
        f"A delayed message with a payload of 200 bytes takes {_value(figures, 'memory')} bytes of the server's memory,"
        f" and {dearest:.0f} bytes immediately after a hash table of the server has doubled its size. If the message is"
        f" cancelled, its data is removed after ten minutes, and its timer takes {_value(figures, 'cancelled_gone')}"
        " bytes until the due time.",
        f"While 3,000,000 other messages are delayed, a message costs {_value(figures, 'backlog')} times as much server"
        " time as while 30,000 are delayed, in calls of 100 messages.",
        "If 100,000 messages wait because other messages of their customers are running, a dequeue of 100"
        f" messages costs {_value(figures, 'blocked')} times as much as without these 100,000.",
    ]


def _several_servers(figures: Figures) -> list[str]:
    share = figures["timestone_share"]["samples"]
    return [
        "After an event process was stopped with SIGTERM, no message of its shards became deliverable more than"
        f" {_value(figures, 'handover')} ms late. If an event process is killed, another one takes over in"
        f" {_value(figures, 'takeover_first', share=0.001)} s. Most of it is the `--session-timeout`.",
        "If a primary of a Redis Cluster is killed, calls succeed again after"
        f" {_value(figures, 'failover', share=0.001)} s.",
        f"An event process publishes {_value(figures, 'relay')} state changes a second from one shard to Kafka.",
        f"One process of the service handles {_value(figures, 'service_enqueue')} single enqueues a second, or"
        f" {_value(figures, 'service_batch')} messages a second in batches.",
        "If a client waits for a message through the service, it receives the message"
        f" {_value(figures, 'service_wake_p50')} ms (median) after the enqueue starts.",
        "Netflix published the load of its queue Timestone: 1,200 enqueues and 30,000 dequeue requests a second. In"
        " place of ten dequeue requests for one message each, our benchmark sends one call for up to ten messages. A"
        " load counts as sustained if the latency (99th percentile) stays below 25 ms for enqueues and below 45 ms for"
        f" dequeues. In the median run, one process of the service sustains {_value(figures, 'timestone_share')} % of"
        f" this load; the slowest run sustained {min(share):g} %, the fastest {max(share):g} %. The load generator runs"
        " on the same two cores.",
        f"A worker adds {_value(figures, 'worker_overhead')} µs to the run time of a task. With tasks that do nothing,"
        f" it runs {_value(figures, 'worker_against_celery')} times as many tasks a second as Celery, and"
        f" {_value(figures, 'worker_against_dramatiq')} times as many as dramatiq.",
    ]


def _value(figures: Figures, name: str, *, share: float = 1) -> str:
    """Return the value of a row, multiplied by ``share``, with two significant digits."""
    number = figures[name]["value"] * share
    rounded = round(number, 1 - math.floor(math.log10(abs(number))))
    return f"{rounded:,.0f}" if rounded >= 100 or rounded == int(rounded) else f"{rounded:g}"


def _wrap(text: str) -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
