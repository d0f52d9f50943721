"""The order of the test files for several processes: the slowest first, so that all processes end at about one time."""

from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

# Sorted by their duration, from three minutes down to ten seconds. The other files are sorted by their number of tests.
SLOW_FILES = (
    "fault/test_election_pauses.py",
    "property/test_operations.py",
    "fault/test_harness.py",
    "examples/test_bench_smoke.py",
    "integration/migration/test_importing.py",
    "fault/test_event_process_faults.py",
    "property/test_mutants.py",
    "fault/test_worker_processes.py",
    "integration/cli/test_processes.py",
    "property/test_wheel_simulator.py",
    "property/test_walks.py",
    "examples/test_demo.py",
    "integration/test_fence.py",
    "fault/test_relay_faults.py",
    "fault/test_service_faults.py",
    "examples/test_docs.py",
    "fault/test_cluster_resharding.py",
    "fault/test_sink_faults.py",
    "fault/test_elections.py",
    "fault/test_election_faults.py",
    "integration/test_services_command.py",
    "integration/test_load.py",
    "integration/test_filters.py",
    "packaging/test_install.py",
    "upgrade/test_mixed_elections.py",
    "upgrade/test_rolling_upgrade.py",
    "fault/test_workers.py",
    "integration/cli/test_serve.py",
    "integration/migration/test_both_sides.py",
    "fault/test_cluster_failover.py",
    "fault/test_lease_election.py",
    "fault/test_lease_on_cluster.py",
    "integration/test_services.py",
    "fault/test_clock_steps.py",
    "integration/embedded/test_sharing.py",
    "examples/test_programs.py",
    "examples/test_deploy.py",
    "integration/test_relay.py",
    "fault/test_planted_bugs.py",
    "security/test_service_clients.py",
    "integration/election/test_election.py",
    "integration/cli/test_serve_metrics.py",
    "property/test_assignment.py",
    "security/test_acl.py",
    "fault/test_lease_renewal_on_cluster.py",
    "fault/test_filing_crashes.py",
    "fault/test_recurring_tasks.py",
    "integration/cli/test_checks.py",
    "fault/test_power_loss.py",
    "fault/test_dropped_replies.py",
    "examples/test_worker_pages.py",
    "fault/test_long_polling.py",
    "tasks/test_selectors.py",
)


def slowest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Sort the tests by file. The tests of a file keep their order."""
    tests = Counter(item.path for item in items)
    rank = {TESTS / name: number for number, name in enumerate(SLOW_FILES)}
    return sorted(items, key=lambda item: (rank.get(item.path, len(rank)), -tests[item.path], item.path))
