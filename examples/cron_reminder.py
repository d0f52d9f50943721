"""Remind people of the standup on weekdays at 9:30 local time, in two time zones.

`tickwheel worker cron_reminder:app` runs the schedules, on any number of hosts: each occurrence fires once. This
program runs such a worker. A third schedule fires every second, so that you need not wait for the morning.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tickwheel.tasks import TaskApp, current

app = TaskApp()


@app.task(queue="reminders")
def remind(place: str) -> None:
    # The due time of the message is the time of the occurrence, even if the task runs late or again.
    print(f"{place}: the standup of {current().message.due:%H:%M:%S} UTC begins", flush=True)


for place in ("Europe/Berlin", "America/New_York"):
    app.cron("30 9 * * MON-FRI", remind.call(place), timezone=place)
app.cron("* * * * * *", remind.call("here"), name="every second", missed="all")


def main() -> None:
    for schedule in app.schedules.values():
        print(f"{schedule.name}: next {schedule.next():%Y-%m-%d %H:%M:%S} UTC")
    with tempfile.TemporaryDirectory() as folder:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tickwheel", "worker", "cron_reminder:app"],
            cwd=Path(__file__).parent,
            env=os.environ | {"TICKWHEEL_DATA_DIR": folder},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert worker.stdout is not None
        for _ in range(3):
            print(worker.stdout.readline(), end="")
        worker.terminate()
        worker.communicate()


if __name__ == "__main__":
    main()
