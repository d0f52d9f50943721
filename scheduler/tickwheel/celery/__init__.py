"""Migration from Celery to Tickwheel, one task at a time. The code that calls tasks does not change.

    from tickwheel.celery import migrate
    from tickwheel.tasks import TaskApp

    tickwheel = TaskApp("redis://localhost:6379")
    migrate(celery, tickwheel)                        # in the module of the Celery app

    tickwheel.route("mail.send", to="tickwheel", share=0.1)   # anywhere, at any time

A tenth of the calls ``send.delay(…)`` then run in ``tickwheel worker shop.celery:tickwheel``, the others in Celery's
workers. `tickwheel import celery` moves messages that already wait in Celery's Redis. Calls that Tickwheel cannot run,
for example chains and groups, stay with Celery.

sender.py           `migrate`, and the choice between Celery and Tickwheel for each call
task_adapter.py     the tasks of a Celery app as tasks of a TaskApp
result_store.py     the repetition that stores a result although the result backend fails for a short time
worker_signals.py   the signals of a Celery worker at the start and at the end of its processes
carry_over.py       the tasks that stay with Celery, the reasons, and whether Celery runs them
trace_log.py        the errors that Celery logs with their tracebacks
prefetch.py         the calls that may wait in a worker while it runs other calls
failure_record.py   the failure of a call whose process died, or whose task exceeded its time limit
unknown_task.py     the failure of a call whose task the worker does not have
control.py          `revoke` for calls that went to Tickwheel
revoked_calls.py    the end of a running call that was revoked with ``terminate``
queue_names.py      the names of the queues of a Celery app in both systems
celery_message.py   conversion of Celery messages, and the reasons why a message cannot be converted
broker_url.py       the URL of Celery's broker in the form of kombu
importer.py         `tickwheel import celery`: the move of messages out of Celery's Redis, without loss
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tickwheel.celery.sender import migrate

__all__ = ["migrate"]


def __getattr__(name: str) -> Any:
    # Imported at first use: the importer runs without Celery.
    if name == "migrate":
        from tickwheel.celery.sender import migrate

        return migrate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
