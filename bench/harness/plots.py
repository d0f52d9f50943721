"""The plots: small PNG files drawn from what the results hold, so that they can be drawn again without measuring."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

_SIZE = (6.4, 3.6)
_DPI = 90


def draw(measurements: dict[str, dict[str, Any]], folder: Path) -> None:
    """Draw what there are figures for."""
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
    axes.set_xlabel("from due to the worker's hands, ms (the last bar holds all that is later)")
    axes.set_ylabel("messages")
    axes.set_title(measurement["what"].rpartition(":")[0], fontsize=10)


def _backlog(axes: Axes, measurement: dict[str, Any]) -> None:
    details = measurement["details"]
    for size, samples in details["life_us"].items():
        axes.plot([int(size)] * len(samples), samples, "o", color="tab:grey", markersize=3)
    medians = details["median_life_us"]
    axes.plot([int(size) for size in medians], list(medians.values()), "o-", color="tab:blue")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("messages that wait for a later day")
    axes.set_ylabel("server CPU of a whole life, µs")
    axes.set_title("Cost against backlog", fontsize=10)


def _phases(axes: Axes, measurement: dict[str, Any]) -> None:
    phases = measurement["details"]["phases_us"]
    axes.barh(list(phases), list(phases.values()))
    axes.invert_yaxis()
    axes.set_xlabel("server CPU, µs a message in batches of 100")
    axes.set_title("Where the server's time goes in a whole delayed life", fontsize=10)
