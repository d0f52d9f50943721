"""The benchmarks run from end to end. Their results are not judged: a quick run is too small to be meaningful."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.examples

ROOT = Path(__file__).parents[2]
FIGURES = {
    "life",
    "big_life",
    "backlog",
    "memory",
    "pairs",
    "cancelled_retained",
    "cancelled_gone",
    "life_4_shards",
    "life_64_shards",
    "blocked",
    "filtered",
    "exclusive_filtered",
    "longest_call",
    "empty",
    *(f"celery_round_trip_{part}_{over}" for part in ("p50", "p99") for over in ("redis", "grpc")),
    "client_enqueue",
    "client_finish",
    "delayed_lives",
    "durability_memory",
    "durability_memory_aof",
    "durability_fsync",
    "durability_replica_1",
    "relay",
    "relay_server",
    "relay_single",
    "relay_single_server",
    "large_requests_block",
    "large_requests_memory",
    "many_queues",
    "lateness_p50",
    "lateness_p99",
    "lateness_early",
    "handover",
    "service_batch",
    "service_enqueue",
    "service_enqueue_share",
    "service_fairness",
    "service_parked",
    "service_processes",
    "service_wake_p50",
    "service_wake_asleep",
    "service_wake_p99",
    "election_calls_4s",
    "election_calls_last_resort",
    "election_connections_standby",
    "election_switches",
    "election_switches_of_process",
    "election_switches_of_standby",
    "election_wake_ups",
    "election_wake_ups_standby",
    "lease_handover",
    "lease_handover_last_resort",
    "lease_handover_last_resort_service",
    "lease_handover_time",
    "lease_takeover_1",
    "lease_takeover_1_stepped",
    "takeover",
    "takeover_first",
    "timestone_bursts",
    "timestone_bursts_dequeue",
    "timestone_dequeue",
    "timestone_direct_share",
    "timestone_enqueue",
    "timestone_share",
    "handover_time",
    "failover",
    "timing_wheel",
    "timing_wheel_same_rate",
    "queue_metrics",
    "queue_shares_cluster",
    "queue_shares_grpc",
    "queue_shares_redis",
    "worker_against_celery",
    "worker_against_dramatiq",
    "worker_async_8_grpc",
    "worker_cpu",
    "worker_overhead",
    *(f"worker_pick_up_{part}_{over}" for part in ("p50", "p99") for over in ("redis", "grpc")),
    "worker_supervisor_cpu",
    "worker_log",
}


def _bench(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=680, check=False
    )


@pytest.mark.timeout(720)
def test_a_quick_run_measures_every_row_and_writes_results_and_plots(tmp_path: Path) -> None:
    run = _bench("--quick", "--results", str(tmp_path))

    assert run.returncode == 0, run.stderr
    results = json.loads((tmp_path / "bench.json").read_text())
    assert results["quick"] is True
    assert set(results["figures"]) == FIGURES
    assert all(figure["runs"] == len(figure["samples"]) > 0 for figure in results["figures"].values())
    assert {path.name for path in tmp_path.glob("*.png")} == {"backlog.png", "lateness.png", "life.png"}


def test_an_unknown_row_is_refused_by_name(tmp_path: Path) -> None:
    run = _bench("--only", "memory,nonsense", "--results", str(tmp_path))

    assert run.returncode == 2
    assert "there is no row nonsense" in run.stderr
    assert not list(tmp_path.iterdir())
