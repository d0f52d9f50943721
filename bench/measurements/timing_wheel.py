"""The timing wheel: a timer's cost with a million in the wheel, against ten thousand."""

from typing import Any

from bench.harness import timing_wheel_program as wheel_bench
from bench.harness.measurement import Figure, Scale


def wheel(scale: Scale) -> list[Figure]:
    """Both settings of `wheel_bench`: the bar is for more timers with the same delays, so that nothing but the number
    differs; that longer delays cost a level more is only reported."""
    few, many = scale.size(wheel_bench.FEW, 500), scale.size(wheel_bench.MANY, 5_000)
    rounds = scale.runs(wheel_bench.ROUNDS)
    settings = wheel_bench.measure(few, many, rounds)
    return [
        _figure("timing_wheel", "the same delays", settings["same_delays"], few, many, 1.2),
        _figure("timing_wheel_same_rate", "delays 100 times as long", settings["same_rate"], few, many, None),
    ]


def _figure(name: str, delays: str, setting: dict[str, Any], few: int, many: int, bar: float | None) -> Figure:
    what = f"timing_wheel: add + fire per timer at {many:,} against {few:,} timers, {delays}"
    return Figure(name, what, "×", setting["ratios"], bar, value=setting["ratio"], details=setting)
