"""A plan that stops before one of its steps, as in a process that the operating system has stopped."""

from collections.abc import Callable
from typing import Any

from tickwheel import Tickwheel
from tickwheel.plan import Plan, Round


class HeldPlan:
    """Runs the steps of a plan with the executor of a client, until the test stops the plan."""

    def __init__(self, client: Tickwheel, plan: Plan[Any]) -> None:
        self._client = client
        self._plan = plan
        self._step: Any = plan.send(None)
        self._has_ended = False
        self._result: Any = None

    def run_until(self, is_here: Callable[[Any], bool]) -> bool:
        """Run the steps before the first one for which ``is_here`` is true. Return False if the plan has ended."""
        while not self._has_ended and not is_here(self._step):
            self._advance()
        return not self._has_ended

    def run_until_script(self, name: str) -> bool:
        """Run the steps before the first one that calls this script. Return False if the plan has ended."""
        return self.run_until(lambda step: name in scripts_of(step))

    def run_until_command(self, name: str) -> bool:
        """Run the steps before the first one that sends this command. Return False if the plan has ended."""
        return self.run_until(lambda step: name in commands_of(step))

    def run_steps(self, count: int) -> bool:
        """Run this many steps. Return False if the plan has ended."""
        left = iter(range(count))
        return self.run_until(lambda _: next(left, None) is None)

    def finish(self) -> Any:
        """Run the remaining steps. Return the result of the plan."""
        while not self._has_ended:
            self._advance()
        return self._result

    def _advance(self) -> None:
        try:
            try:
                answer = self._client._run(_one(self._step))
            except Exception as error:
                self._step = self._plan.throw(error)
            else:
                self._step = self._plan.send(answer)
        except StopIteration as end:
            self._has_ended, self._result = True, end.value


def scripts_of(step: Any) -> list[str]:
    """Return the names of the scripts that the step calls."""
    return [request.call.script.name for request in step.requests if request.call] if isinstance(step, Round) else []


def commands_of(step: Any) -> list[Any]:
    """Return the names of the plain commands that the step sends."""
    return [request.command[0] for request in step.requests if request.command] if isinstance(step, Round) else []


def _one(step: Any) -> Plan[Any]:
    return (yield step)
