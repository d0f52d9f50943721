"""`tickwheel events` whose relay, once ordered to, kills its process between the broker's acknowledgement and the cut.

Usage: self_killing_relay.py ORDER ARGUMENTS. The order is a file, which is taken away; beside it, in `killed-PID`, is
what was in flight then: a line of JSON, how many transitions were acknowledged and not cut, and how many in all.
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

_cut = Relay._trim


def cut(relay: Relay, link: ShardConnection, flight: InFlightWindows) -> None:
    if order.exists():
        acknowledged = takewhile(lambda window: window.is_acknowledged, flight._windows)
        found = [
            sum(window.trim_range.transitions for window in windows) for windows in (acknowledged, flight._windows)
        ]
        order.with_name(f"killed-{os.getpid()}").write_text(json.dumps(found))
        order.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    _cut(relay, link, flight)


if __name__ == "__main__":
    order = Path(sys.argv.pop(1))
    Relay._trim = cut  # type: ignore[method-assign, assignment]
    main()
