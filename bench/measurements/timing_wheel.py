"""The CPU time of a timer in a timing wheel with a million timers, relative to ten thousand."""

from typing import Any

from bench.harness import timing_wheel_program
from bench.harness.measurement import Measurement, Scale


def wheel(scale: Scale) -> list[Measurement]:
    """Measure both settings of `timing_wheel_program`.

    The goal applies to the setting ``same_delays``, in which only the number of timers differs. In ``same_rate``, the
    longer delays need one more level of the wheel. This setting has no goal.
    """
    few, many = scale.size(timing_wheel_program.FEW, 500), scale.size(timing_wheel_program.MANY, 5_000)
    rounds = scale.runs(timing_wheel_program.ROUNDS)
    settings = timing_wheel_program.measure(few, many, rounds)
    same_delays = "with the same delays, so 100 times as many are due in a second"
    same_rate = "with delays 100 times as long, so as many are due in a second"
    return [
        _measurement("timing_wheel", same_delays, settings["same_delays"], few, many, 1.2),
        _measurement("timing_wheel_same_rate", same_rate, settings["same_rate"], few, many, None),
    ]


def _measurement(
    name: str, delays: str, setting: dict[str, Any], few: int, many: int, bar: float | None
) -> Measurement:
    label = (
        f"CPU time to add and fire one of {many:,} timers in the package timing_wheel,"
        f" relative to one of {few:,} timers, {delays}"
    )
    return Measurement(name, label, "×", setting["ratios"], bar, value=setting["ratio"], details=setting)
