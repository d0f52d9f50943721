"""A wrong clock for a server or a program, by libfaketime. Its monotonic clock stays right.

A file has the difference from this host's clock. The program reads the file whenever it reads the clock, so the clock
steps while the program runs.
"""

from pathlib import Path

from services.apt import find_or_install


def clock_environment(file: Path) -> dict[str, str]:
    """Return the environment of a process whose clock is this host's clock plus the step in the file, first 0.

    Raises ServiceError if libfaketime is missing and cannot be installed.
    """
    library = find_or_install(_libfaketime, "faketime")
    step_clock(file, 0)
    return {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        # The step must not affect time-outs. Later versions of libfaketime use the second name.
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def _libfaketime() -> str | None:
    return next((str(file) for file in Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)


def step_clock(file: Path, seconds: int) -> None:
    """Set the difference between the clock and this host's clock."""
    set_clock(file, f"{seconds:+d}")


def drift_clock(file: Path, rate: float) -> None:
    """Set the rate of the clock relative to this host's clock, from the start of its process on."""
    set_clock(file, f"+0 x{rate}")


def set_clock(file: Path, clock: str) -> None:
    """Write the time or the rate of a clock atomically, because processes read the file at any time."""
    new = file.with_suffix(".new")
    new.write_text(f"{clock}\n")
    new.replace(file)
