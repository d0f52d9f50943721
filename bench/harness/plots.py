"""The plots: small PNG files, drawn from the stored results without measuring again."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

_SIZE = (6.4, 3.6)
_DPI = 90


def draw(measurements: dict[str, dict[str, Any]], folder: Path) -> None:
    """Draw every plot whose measurement exists."""
    for name, file, plot in (
        ("lateness_p50", "lateness.png", _lateness),
        ("backlog", "backlog.png", _backlog),
        ("life", "life.png", _phases),
    ):
        if name in measurements:
            canvas = Figure(figsize=_SIZE, dpi=_DPI, layout="tight")
            plot(canvas.subplots(), measurements[name])
            canvas.savefig(folder / file)


def _lateness(axes: Axes, measurement: dict[str, Any]) -> None:
    details = measurement["details"]
    bins, width = details["histogram"], details["bin_ms"]
    axes.bar([n * width for n in range(len(bins))], bins, width=width, align="edge")
    axes.set_yscale("symlog")
    axes.set_xlabel("ms (last bar: all higher values)")
    axes.set_ylabel("messages")
    axes.set_title("Time from the due time until a worker has the message", fontsize=10)


def _backlog(axes: Axes, measurement: dict[str, Any]) -> None:
    details = measurement["details"]
    for size, samples in details["life_us"].items():
        axes.plot([int(size)] * len(samples), samples, "o", color="tab:grey", markersize=3)
    medians = details["median_life_us"]
    axes.plot([int(size) for size in medians], list(medians.values()), "o-", color="tab:blue")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("other delayed messages")
    axes.set_ylabel("server CPU time for a life, µs")
    axes.set_title("Server CPU time and the number of delayed messages", fontsize=10)


def _phases(axes: Axes, measurement: dict[str, Any]) -> None:
    phases = measurement["details"]["phases_us"]
    axes.barh(list(phases), list(phases.values()))
    axes.invert_yaxis()
    axes.set_xlabel("server CPU time for a message in calls of 100, µs")
    axes.set_title("Server CPU time for the steps of a life", fontsize=10)
