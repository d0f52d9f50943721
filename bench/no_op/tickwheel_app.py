"""An app for `tickwheel worker` with tasks that do nothing. TICKWHEEL_URL is the URL of the server."""

from bench.no_op.progress_marks import no_op
from tickwheel.tasks import TaskApp

app = TaskApp()
app.queue("no-op", batch=10)


@app.task(queue="no-op")
def sync_no_op(n: int) -> None:
    no_op()


@app.task(queue="no-op")
async def async_no_op(n: int) -> None:
    no_op()
