"""The package as a whole: its exports, its dependencies, and the examples of its README."""

import ast
import doctest
import sys
from pathlib import Path
from typing import Any

import pytest

import timing_wheel
from bench.harness import timing_wheel_program

pytestmark = pytest.mark.unit

PACKAGE = Path(timing_wheel.__file__).parent


def test_the_package_exports_its_two_classes_and_is_typed() -> None:
    assert timing_wheel.__all__ == ["Timer", "TimingWheel"]
    assert all(hasattr(timing_wheel, name) for name in timing_wheel.__all__)
    assert (PACKAGE / "py.typed").exists()


def test_the_package_needs_only_the_standard_library() -> None:
    imported = set()
    for file in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])

    assert imported <= {*sys.stdlib_module_names, "timing_wheel"}
    assert not imported & {"time", "datetime", "threading", "asyncio", "socket", "os", "io"}


def test_the_examples_of_the_readme_produce_the_output_shown() -> None:
    result = doctest.testfile(str(PACKAGE / "README.md"), module_relative=False)

    assert result.attempted >= 8
    assert result.failed == 0


def test_the_loop_of_the_readme_fires_each_timer_on_time_and_in_order() -> None:
    readme = (PACKAGE / "README.md").read_text()
    loop = next(block for block in readme.split("```python\n") if block.startswith("def run"))
    wheel: timing_wheel.TimingWheel[int] = timing_wheel.TimingWheel(0)
    handled: list[tuple[int, int]] = []

    class Clock:
        """A clock that advances only while the loop waits, up to the end of the test."""

        ms = 0.0

        def is_set(self) -> bool:
            return self.ms >= 10_000

        def wait(self, seconds: float | None) -> None:
            self.ms = 10_000 if seconds is None else self.ms + seconds * 1_000

    clock = Clock()
    names: dict[str, Any] = {
        "now_ms": lambda: round(clock.ms),
        "handle": lambda item: handled.append((item, round(clock.ms))),
    }
    for time in (0, 20, 5_000, 70, 70):
        wheel.add(time, time)

    exec(loop.split("```")[0], names)
    names["run"](wheel, clock)

    assert handled == [(0, 0), (20, 20), (70, 70), (70, 70), (5_000, 5_000)]


def test_the_benchmark_measures_both_settings() -> None:
    result = timing_wheel_program.measure(few=100, many=1_000, rounds=1)

    assert set(result) == {"same_delays", "same_rate"}
    for setting in result.values():
        assert set(setting) == {"ns_per_timer_at_100", "ns_per_timer_at_1000", "ratio", "ratios"}
        assert len(setting.pop("ratios")) == 1
        assert all(figure > 0 for figure in setting.values())
