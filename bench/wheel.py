"""The timing wheel: a timer's cost with a million in the wheel, against ten thousand."""

from bench import wheel_bench
from bench.figures import Figure, Scale


def wheel(scale: Scale) -> list[Figure]:
    """Both settings of `wheel_bench`; the worse ratio counts."""
    few, many = scale.size(wheel_bench.FEW, 500), scale.size(wheel_bench.MANY, 5_000)
    rounds = scale.runs(wheel_bench.ROUNDS)
    settings = wheel_bench.measure(few, many, rounds)
    ratios = {name: setting["ratio"] for name, setting in settings.items()}
    return [
        Figure(
            "timing_wheel",
            f"timing_wheel: add + fire per timer at {many:,} against {few:,} timers",
            "×",
            list(ratios.values()),
            1.2,
            value=max(ratios.values()),
            details={
                "settings": settings,
                "rounds": rounds,
                "value_is": "the worse setting, each the ratio of medians",
            },
        )
    ]
