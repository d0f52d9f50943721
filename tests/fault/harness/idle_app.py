"""The app of workers that drive a run as a last resort. Nobody sends calls of its task."""

from tickwheel.tasks import TaskApp

app = TaskApp()


@app.task(queue="idle")
def rest() -> None:
    """Do nothing."""
