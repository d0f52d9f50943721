"""From Celery to Tickwheel, one task at a time and with no change where tasks are called.

    from tickwheel.celery import migrate
    from tickwheel.tasks import TaskApp

    tickwheel = TaskApp("redis://localhost:6379")
    migrate(celery, tickwheel)                        # beside the Celery app

    tickwheel.route("mail.send", to="tickwheel", share=0.1)   # anywhere, at any time

A tenth of ``send.delay(…)`` then runs in ``tickwheel worker shop.celery:tickwheel``, the others in Celery's workers.

call        a Celery message as a Tickwheel message, and what keeps it from being one
sending     a Celery app whose calls go where their route says
running     Celery's tasks as the tasks of a TaskApp
broker      what waits in Celery's Redis, taken out so that nothing is lost or run twice
importing   moving it: `tickwheel import celery`
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tickwheel.celery.router import migrate

__all__ = ["migrate"]


def __getattr__(name: str) -> Any:
    # Imported when it is asked for: the importer needs no Celery.
    if name == "migrate":
        from tickwheel.celery.router import migrate

        return migrate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
