"""The order of the test files for several processes: the slowest first, so that all processes end at about one time."""

from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

# Sorted by their duration, from minutes down to ten seconds. The other files are sorted by their number of tests.
SLOW_FILES = (
    "examples/test_bench_smoke.py",
    "fault/test_last_resort.py",
    "upgrade/test_rolling_upgrade.py",
    "fault/test_harness.py",
    "fault/test_elections.py",
    "security/test_hostile_redis.py",
    "fault/test_worker_processes.py",
    "integration/test_load.py",
    "examples/test_demo.py",
    "fault/test_worker_stops.py",
    "integration/cli/test_processes.py",
    "fault/test_cluster_resharding.py",
    "property/test_lease_simulation.py",
    "property/test_mutants.py",
    "fault/test_sink_faults.py",
    "property/test_wheel_simulator.py",
    "integration/test_delete_queue.py",
    "examples/test_small_deployment.py",
    "fault/test_relay_faults.py",
    "fault/test_programs_of_a_lost_namespace.py",
    "integration/test_filters.py",
    "integration/cli/test_json_streams.py",
    "security/test_service_large_requests.py",
    "examples/test_docs.py",
    "fault/test_workers_of_deleted_queues.py",
    "fault/test_scan_cursors.py",
    "fault/test_lease_election.py",
    "fault/test_election_faults.py",
    "fault/test_moved_deletions.py",
    "fault/test_cluster_failover.py",
    "integration/migration/test_three_deployments.py",
    "fault/test_service_faults.py",
    "property/test_operations.py",
    "fault/test_lost_leases.py",
    "fault/test_worker_process_ends.py",
    "fault/test_clock_steps.py",
    "integration/test_several_queues.py",
    "integration/test_transitions.py",
    "security/test_bad_task_input.py",
    "integration/migration/test_importing.py",
    "fault/test_stopped_programs.py",
    "fault/test_election_pauses.py",
    "fault/test_log_of_tasks.py",
    "fault/test_stopped_dequeues.py",
    "fault/test_call_timeouts.py",
    "integration/cli/test_overdue.py",
    "packaging/test_install.py",
    "integration/migration/test_staying_tasks.py",
    "property/test_walks.py",
    "security/test_url_secrets.py",
    "integration/test_exclusive_queues.py",
    "fault/test_late_event_processes.py",
    "integration/cli/test_serve.py",
    "integration/cli/test_serve_driving.py",
    "fault/test_killed_deletions.py",
    "integration/test_invalid_transitions.py",
    "upgrade/test_mixed_elections.py",
    "integration/test_leases.py",
    "fault/test_recurring_tasks.py",
    "security/test_corrupt_keys.py",
    "integration/test_sink_forwarding.py",
    "fault/test_child_metrics.py",
    "tasks/test_selectors.py",
    "fault/test_lease_on_cluster.py",
    "integration/test_inspect.py",
    "fault/test_interrupted_steps.py",
    "fault/test_stopped_workers.py",
    "integration/test_services.py",
    "integration/cli/test_frozen_answers.py",
    "fault/test_planted_bugs.py",
    "upgrade/test_mixed_relays.py",
    "integration/test_forgotten_queues.py",
    "integration/test_enqueue.py",
    "security/test_acl.py",
    "fault/test_event_process_faults.py",
    "fault/test_filing_crashes.py",
)

# Files whose tests use the processor for less than a third of their time. In total, they take less time than a third of
# the other files.
WAITING_FILES = frozenset(
    {
        "examples/test_demo.py",
        "examples/test_small_deployment.py",
        "fault/test_child_metrics.py",
        "fault/test_clock_steps.py",
        "fault/test_cluster_failover.py",
        "fault/test_dropped_replies.py",
        "fault/test_election_faults.py",
        "fault/test_election_pauses.py",
        "fault/test_elections.py",
        "fault/test_interrupted_steps.py",
        "fault/test_last_resort.py",
        "fault/test_late_event_processes.py",
        "fault/test_lease_election.py",
        "fault/test_lease_on_cluster.py",
        "fault/test_moved_deletions.py",
        "fault/test_stopped_dequeues.py",
        "fault/test_time_limits.py",
        "fault/test_worker_process_ends.py",
        "fault/test_worker_stops.py",
        "integration/cli/test_checks.py",
        "integration/cli/test_overdue.py",
        "integration/cli/test_serve_driving.py",
        "integration/cli/test_undriven_warnings.py",
        "integration/test_relay.py",
        "integration/test_shared_searches.py",
        "integration/test_sink_forwarding.py",
        "security/test_hostile_redis.py",
    }
)


def slowest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Sort the tests by file. The tests of a file keep their order."""
    tests = Counter(item.path for item in items)
    rank = {TESTS / name: number for number, name in enumerate(SLOW_FILES)}
    return sorted(items, key=lambda item: (rank.get(item.path, len(rank)), -tests[item.path], item.path))
