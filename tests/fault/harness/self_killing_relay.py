"""`tickwheel events` with a relay that can kill its process between the broker's acknowledgement and the trim.

Usage: self_killing_relay.py ORDER ARGUMENTS. If the file ORDER exists, the relay deletes it and kills its process. The
file `killed-PID` in the same folder then contains JSON: the number of transitions that were acknowledged and not
trimmed, and the number in flight.
"""

import json
import os
import signal
import sys
from itertools import takewhile
from pathlib import Path

from tickwheel.cli import main
from tickwheel.driver.shard_connection import ShardConnection
from tickwheel.relay.relay import InFlightWindows, Relay

_trim = Relay._trim


def trim_or_die(relay: Relay, link: ShardConnection, flight: InFlightWindows) -> None:
    if order.exists():
        acknowledged = takewhile(lambda window: window.is_acknowledged, flight._windows)
        counts = [
            sum(window.trim_range.transitions for window in windows) for windows in (acknowledged, flight._windows)
        ]
        order.with_name(f"killed-{os.getpid()}").write_text(json.dumps(counts))
        order.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    _trim(relay, link, flight)


if __name__ == "__main__":
    order = Path(sys.argv.pop(1))
    Relay._trim = trim_or_die  # type: ignore[method-assign, assignment]
    main()
