"""Remind the participants of a meeting before it starts. If a meeting moves, its reminders move with it.

In this example, a minute lasts 100 ms.
"""

import tempfile
from datetime import UTC, datetime, timedelta

from tickwheel import NewMessage, Tickwheel

MINUTE = timedelta(milliseconds=100)
BEFORE = 5 * MINUTE
MEETINGS = {"standup": ["ada", "grace", "edsger"], "review": ["ada", "barbara"]}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Tickwheel(data_dir=folder) as tickwheel:
        reminders = tickwheel.create_queue("reminders")
        now = datetime.now(UTC)
        starts = {"standup": now + 15 * MINUTE, "review": now + 20 * MINUTE}

        for meeting, people in MEETINGS.items():
            reminders.enqueue_many(
                NewMessage(
                    person.encode(),
                    id=f"{meeting}:{person}",
                    due=starts[meeting] - BEFORE,
                    # A reminder after the start is too late. The message with the earliest deadline is first.
                    deadline=starts[meeting],
                    metadata={"meeting": meeting},
                )
                for person in people
            )

        print("the standup starts half an hour later than planned")
        starts["standup"] += 30 * MINUTE
        for person in MEETINGS["standup"]:
            reminders.reschedule(f"standup:{person}", due=starts["standup"] - BEFORE, deadline=starts["standup"])

        left = sum(map(len, MEETINGS.values()))
        while left:
            for message in reminders.dequeue(limit=10, wait=timedelta(seconds=10)):
                meeting = message.metadata["meeting"]
                ahead = (starts[meeting] - datetime.now(UTC)) / MINUTE
                print(f"{message.payload.decode()}: the {meeting} is in {ahead:.0f} minutes")
                message.complete()
                left -= 1


if __name__ == "__main__":
    main()
