"""An event process that counts what its election does. After each signal SIGUSR2, the process prints a line with the
counts so far, as JSON after the word "counts":

at                 the monotonic clock, in seconds
wake_ups           how often a wait of the election's thread has ended: at the time of its next call, by a message of
                   another process, or by another thread
calls              how often the thread has called the server; a pipeline is one call
election_switches  the voluntary context switches of the thread: after each wait, and after each reply
switches           the voluntary context switches of all threads

The arguments are those of `python -m tickwheel.event_process`.
"""

import json
import re
import resource
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from tickwheel.election.lease_attendance import Attendance, Attended
from tickwheel.event_process import lease_election
from tickwheel.event_process.lease_connection import LeaseConnection
from tickwheel.event_process.main import main
from tickwheel.storage.fence import StoredClaim

_counts = {"wake_ups": 0, "calls": 0}


class _CountingConnection(LeaseConnection):
    """The connections of the election, which count. Only the election's thread uses them."""

    def attend(self, call: Attendance) -> Attended:
        _counts["calls"] += 1
        return super().attend(call)

    def read_claims(self, shards: list[int]) -> dict[int, StoredClaim | None]:
        _counts["calls"] += 1
        return super().read_claims(shards)

    def release(self, fences: Mapping[int, bytes]) -> None:
        _counts["calls"] += bool(fences)
        super().release(fences)

    def wait(self, until_ms: float) -> bool:
        is_news = super().wait(until_ms)
        _counts["wake_ups"] += 1
        return is_news


def _report() -> None:
    """Print the counts after each signal. The waits of this thread are not counted."""
    while True:
        signal.sigwait({signal.SIGUSR2})
        of_process, of_thread = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_THREAD))
        counts = {
            "at": time.monotonic(),
            **_counts,
            "election_switches": _switches_of("tickwheel-election"),
            "switches": of_process.ru_nvcsw - of_thread.ru_nvcsw,
        }
        print("counts", json.dumps(counts), flush=True)


def _switches_of(name: str) -> int:
    """Return the voluntary context switches of the thread with this name."""
    [thread] = (thread.native_id for thread in threading.enumerate() if thread.name == name)
    status = Path(f"/proc/self/task/{thread}/status").read_text()
    [switches] = re.findall(r"^voluntary_ctxt_switches:\s+(\d+)$", status, re.MULTILINE)
    return int(switches)


if __name__ == "__main__":
    # Blocked in all threads, so that only `sigwait` receives the signal, and no other thread wakes.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    threading.Thread(target=_report, name="report", daemon=True).start()
    setattr(lease_election, "LeaseConnection", _CountingConnection)  # noqa: B010
    main()
