"""The plots of a report, as SVG, drawn from the report's JSON document."""

import base64
import io
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

# While matplotlib is imported, it reads the file matplotlibrc of the working directory. Another user may have put it
# there.
with chdir(Path(__file__).parent):
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE = (8.0, 2.6)


def draw_plots(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield title and image of each plot that has data. An image is a data URI, so that the page needs no files."""
    if (run := document.get("run")) is not None:
        over_time = run["over_time"]
        for title, prefix, unit, is_log in (
            ("Backlog: deliverable messages", "backlog/", "messages", False),
            ("Wait: from due until delivered to a worker, p95 of each interval", "wait_p95_s/", "s", True),
            ("Lateness: from due until deliverable, p99 of each interval", "lateness_p99_ms/", "ms", True),
            ("Utilisation: share of busy workers", "utilisation/", "share", False),
        ):
            lines = {name.removeprefix(prefix): points for name, points in over_time.items() if name.startswith(prefix)}
            if any(lines.values()):
                yield title, _image(_over_time(lines, unit, document["scenario"], is_log=is_log))
        arrivals = {"enqueued": over_time["enqueued_per_s"]}
        yield (
            "Arrivals: messages enqueued per second of real time",
            _image(_over_time(arrivals, "1/s", document["scenario"])),
        )
    needs = document["capacity"]["hours"]
    if needs:
        yield "Workers needed per hour", _image(lambda axes: _plot_needs(axes, needs))


def _over_time(
    lines: dict[str, list[tuple[float, float]]], unit: str, scenario: dict[str, Any], *, is_log: bool = False
) -> Callable[[Axes], None]:
    def plot(axes: Axes) -> None:
        for name, points in lines.items():
            hours = [scenario["start_hour"] + moment * scenario["speed_up"] / 3600 for moment, _ in points]
            axes.plot(hours, [value for _, value in points], linewidth=1, label=name)
        axes.set_xlabel("hour of the day")
        axes.set_ylabel(unit)
        if is_log:
            axes.set_yscale("symlog", linthresh=0.1 if unit == "s" else 1)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=7, loc="upper left")

    return plot


def _plot_needs(axes: Axes, needs: list[dict[str, Any]]) -> None:
    hours = [hour["hour"] for hour in needs]
    axes.bar(hours, [hour["workers"] or 0 for hour in needs], width=0.95, align="edge", label="needed")
    busy = [hour["busy"] for hour in needs]
    axes.step([*hours, hours[-1] + 1], [*busy, busy[-1]], where="post", color="tab:orange", label="busy on average")
    axes.set_xlabel("hour of the day")
    axes.set_ylabel("workers")
    axes.legend(fontsize=7, loc="lower left")


def _image(plot: Callable[[Axes], None]) -> str:
    canvas = Figure(figsize=_SIZE, layout="tight")
    plot(canvas.subplots())
    svg = io.BytesIO()
    # Without the date and with a fixed salt for the ids, so that the same measurements produce the same file.
    with rc_context({"svg.hashsalt": "tickwheel"}):
        canvas.savefig(svg, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.getvalue()).decode()}"
