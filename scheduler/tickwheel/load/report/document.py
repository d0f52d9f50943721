"""A run as JSON: the content of the HTML report, and every value that the plots are drawn from."""

from collections.abc import Sequence
from typing import Any

from tickwheel.load.capacity.advice import Advice
from tickwheel.load.run.run_result import RunResult
from tickwheel.load.scenario.scenario import Scenario

# The calls that a report lists, in the order of a message's life.
CALLS = ("enqueue", "cancel", "dequeue", "dequeue empty", "complete", "fail")
# The delays of the processes that create the load.
HARNESS = ("lag", "poll lag", "overrun")
SHARES = (0.5, 0.9, 0.95, 0.99)


def scenario_document(scenario: Scenario) -> dict[str, Any]:
    """Return the scenario's part of the document."""
    return {
        "name": scenario.name,
        "about": scenario.about,
        "seed": scenario.seed,
        "scale": scenario.scale,
        "speed_up": scenario.speed_up,
        "start_hour": scenario.start_s / 3600,
        "hours": scenario.length_s / 3600,
        "queues": [queue.name for queue in scenario.queues],
        "workers": {group.name: group.count for group in scenario.workers},
    }


def run_document(outcome: RunResult) -> dict[str, Any]:
    """Return the run's part of the document."""
    measurements = outcome.measurements
    return {
        "server": outcome.server,
        "namespace": outcome.namespace,
        "ended": outcome.ended,
        "interrupted": outcome.interrupted,
        "seconds": round(outcome.seconds, 3),
        "planned": outcome.planned,
        "counts": {name: n for name, n in sorted(measurements.counts.items()) if "/" not in name},
        "calls": _summaries(outcome, CALLS),
        "queues": {queue.name: _queue(outcome, queue.name) for queue in outcome.scenario.queues},
        "harness": {
            "cpu": {name: round(used, 3) for name, used in outcome.cpu.items()},
            "late": _summaries(outcome, HARNESS),
            "was_the_bottleneck": bool(outcome.bottlenecks),
            "why": outcome.bottlenecks,
        },
        "errors": {
            kind: {"count": n, "first": measurements.error_texts.get(kind, "")}
            for kind, n in measurements.errors.items()
        },
        "troubles": outcome.problems,
        "left": outcome.cleanup,
        "over_time": _over_time(outcome),
    }


def _summaries(outcome: RunResult, names: Sequence[str]) -> dict[str, Any]:
    summaries = {name: outcome.measurements.summary(name) for name in names}
    return {name: summary for name, summary in summaries.items() if summary is not None}


def _queue(outcome: RunResult, name: str) -> dict[str, Any]:
    lateness = outcome.lateness(name)
    return {
        # In the scenario's own time: the measured time multiplied by the speed-up.
        "wait_s": {f"p{100 * share:g}": outcome.waits_s("wait", name, share) for share in SHARES},
        "start_s": {f"p{100 * share:g}": outcome.waits_s("start", name, share) for share in SHARES},
        "measured": {
            "wait": outcome.measurements.summary(f"wait/{name}"),
            "start": outcome.measurements.summary(f"start/{name}"),
        },
        "lateness_ms": {
            "p50": lateness.percentile(0.5),
            "p99": lateness.percentile(0.99),
            "buckets": {str(end): count for end, count in lateness.promoted.items()},
        },
        "deadlines": lateness.deadlines,
        "deadlines_missed": sum(lateness.missed.values()),
        "at_the_end": dict(outcome.samples[-1].counts[name]) if outcome.samples else {},
    }


def _over_time(outcome: RunResult) -> dict[str, Any]:
    """Return each series by its name. A series is a list of points [real seconds since the start, value]."""
    measurements, scenario = outcome.measurements, outcome.scenario
    series: dict[str, Any] = {"enqueued_per_s": measurements.rate("enqueued")}
    for queue in scenario.queues:
        series[f"backlog/{queue.name}"] = [(s.moment_s, s.counts[queue.name]["pending"]) for s in outcome.samples]
        series[f"wait_p95_s/{queue.name}"] = [
            (moment, seconds * scenario.speed_up) for moment, seconds in measurements.series(f"wait/{queue.name}", 0.95)
        ]
        series[f"lateness_p99_ms/{queue.name}"] = outcome.lateness_over_time(queue.name, 0.99)
    for group in scenario.workers:
        series[f"utilisation/{group.name}"] = [
            (moment, busy / group.count) for moment, busy in measurements.rate(f"busy/{group.name}")
        ]
    return series


def advice_document(advice: Advice) -> dict[str, Any]:
    """Return the table of workers needed, and the agreement of the simulator with the run."""
    return {
        "scale": advice.scenario.scale,
        "wait_targets_s": {queue.name: advice.target.max_wait_s(queue) for queue in advice.scenario.queues},
        "share": advice.target.share,
        "overheads": {
            "fetch_ms": round(1e3 * advice.overheads.fetch_s, 3),
            "finish_ms": round(1e3 * advice.overheads.finish_s, 3),
            "are_measured": advice.is_measured,
        },
        "workers_now": advice.scenario.worker_count,
        "hours": [
            {
                "hour": item.hour,
                "due_per_s": round(item.due_per_s, 4),
                "busy": round(item.busy, 3),
                "workers": item.workers,
                "utilisation": round(item.utilisation, 4),
                "waits_s": {name: round(wait, 4) for name, wait in item.waits_s.items()},
            }
            for item in advice.needs
        ],
        "agreement": [
            {
                "queue": item.queue,
                "share": item.share,
                "measured_s": round(item.measured_s, 4),
                "simulated_s": round(item.simulated_s, 4),
                "apart_s": round(item.measured_s - item.simulated_s, 4),
            }
            for item in advice.agreement
        ],
        "not_compared": advice.not_compared,
    }
