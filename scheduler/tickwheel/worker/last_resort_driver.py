"""How a worker drives its namespace while nobody else does, and warns while nobody drives."""

import logging
from contextlib import suppress

from tickwheel.client import Tickwheel
from tickwheel.client.admin import Admin
from tickwheel.client.last_resort import LastResort, LastResortOptions
from tickwheel.worker.driver_alarm import DriverAlarm

_log = logging.getLogger("tickwheel.worker")


class LastResortDriver:
    """The child process that drives as a last resort, and the alarm of one worker. `start` may be called once."""

    def __init__(self, options: LastResortOptions | None) -> None:
        """With None, the worker never drives."""
        self._options = options
        self._last_resort: LastResort | None = None
        self._alarm: DriverAlarm | None = None

    @property
    def is_on(self) -> bool:
        """Whether the worker drives if nobody else does."""
        return self._options is not None

    def start(self, client: Tickwheel) -> None:
        """Drive, and warn, in other threads. The embedded server of a data directory is driven by ``client`` itself."""
        settings = Admin(client).settings
        if self._options is not None and settings.url is not None:
            self._last_resort = LastResort(settings, self._options)
            # The host may have no resources for another thread. The worker needs only its other threads.
            with suppress(RuntimeError):
                self._last_resort.start()
        elif self._options is not None and self._options.kafka is not None:
            _log.warning("--kafka has no effect with the embedded server of a data directory")
        self._alarm = DriverAlarm(client, self._last_resort)
        self._alarm.start()

    def stop(self) -> None:
        """End the warnings, and stop the child: it hands its shards over."""
        if self._alarm is not None:
            self._alarm.stop()
        if self._last_resort is not None:
            self._last_resort.stop()
