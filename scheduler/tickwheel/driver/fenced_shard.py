"""One shard as its driver addresses it: key names, scripts, the fence, and script calls that contain the fence."""

from collections.abc import Generator, Sequence
from typing import Any

from tickwheel.driver.commands import Command
from tickwheel.errors import TickwheelError
from tickwheel.storage import keys, scripts
from tickwheel.storage.script_errors import ScriptError


class WritesRefused(TickwheelError):
    """The server refuses all writes for now: another attempt may succeed."""


class FencedShard:
    """A shard, with the fence of one driver."""

    def __init__(self, namespace: str, number: int, clock_fragment: str = "_clock") -> None:
        self.number = number
        self.keys = {name: keys.shard_key(namespace, number, name) for name in keys.SHARD_KEYS}
        self.fence = b""
        self._namespace = namespace
        self._clock_fragment = clock_fragment

    def script(self, name: str) -> scripts.Script:
        return scripts.load(name, self._clock_fragment)

    def slot_key(self, level: int, number: int) -> str:
        return keys.slot_key(self._namespace, self.number, level, number)

    def queue_keys(self, queue: str) -> dict[str, str]:
        """Return all keys that a script of a queue may declare, by name."""
        return keys.declared_keys(self._namespace, self.number, queue)

    def call_fenced(
        self,
        script: scripts.Script,
        args: Sequence[bytes | int | str],
        slot: str = "",
        rest: Sequence[str] = (),
    ) -> Generator[Command, Any, Any]:
        """Call one of the wheel's own scripts with the fence, and return its reply.

        ``slot`` is the key of the script's slot, and ``rest`` are the further keys, if the script declares them. Raises
        Fenced if the fence is outdated, WritesRefused if the server refuses all writes, and TickwheelError for other
        errors of the script.
        """
        try:
            return (yield scripts.bind(script, self.keys | {"slot": slot}, [self.fence, *args], rest))
        except ScriptError as error:
            refusal = error.to_tickwheel_error(f"shard {self.number}")
            raise (WritesRefused(str(refusal)) if error.is_temporary else refusal) from error
