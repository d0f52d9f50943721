"""How a worker or a service drives its namespace while nobody else does, and warns while nobody drives."""

import logging

from tickwheel.client import Tickwheel
from tickwheel.client.admin import Admin
from tickwheel.client.last_resort import LastResort, LastResortOptions
from tickwheel.worker.driver_alarm import DriverAlarm

_log = logging.getLogger("tickwheel.worker")


class LastResortDriver:
    """The child process that drives as a last resort, and the alarm of one program. `start` may be called once."""

    def __init__(self, options: LastResortOptions | None, log: logging.Logger = _log) -> None:
        """If ``options`` is None, the program never drives. ``log`` is the log of the program."""
        self._options = options
        self._log = log
        self._last_resort: LastResort | None = None
        self._alarm: DriverAlarm | None = None
        self._is_ending = False

    @property
    def is_on(self) -> bool:
        """Whether the program drives if nobody else does."""
        return self._options is not None

    def start(self, client: Tickwheel) -> None:
        """Drive, and warn, in other threads. The embedded server of a data directory is driven by ``client`` itself."""
        settings = Admin(client).settings
        if self._options is not None and settings.url is not None:
            self._last_resort = LastResort(settings, self._options)
            self._last_resort.start()
            if self._is_ending:
                self._last_resort.begin_stop()
        elif self._options is not None and self._options.kafka is not None:
            self._log.warning("--kafka has no effect with the embedded server of a data directory")
        self._alarm = DriverAlarm(client, self._last_resort, self._log)
        if not self._is_ending:
            self._alarm.start()

    def begin_stop(self) -> None:
        """End the warnings, and let the child hand its shards over as soon as another process can drive them."""
        self._is_ending = True
        if self._alarm is not None:
            self._alarm.stop()
        if self._last_resort is not None:
            self._last_resort.begin_stop()

    def stop(self) -> None:
        """End the warnings, and stop the child: it hands its shards over."""
        if self._alarm is not None:
            self._alarm.stop()
        if self._last_resort is not None:
            self._last_resort.stop()
