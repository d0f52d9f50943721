"""Every argument of every method of `TaskApp`, `Task` and `TaskHandle` receives every hostile value. The call raises
InvalidArgument when a program declares the task, queue, schedule or route, enqueues a call or uses its handle, and not
when a worker uses it.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.security.app_calls import APP_ARGUMENTS, PASSED_ON, AppTargets, send
from tests.security.hostile_values import VALUES
from tests.security.test_bad_input import refusal
from tickwheel import InvalidArgument, Tickwheel
from tickwheel.tasks import Task, TaskApp
from tickwheel.tasks.handle import CallMethods, TaskHandle
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.security


@pytest.fixture
def targets(tickwheel: Tickwheel, tickwheel_server: PrivateServer) -> Iterator[AppTargets]:
    namespace = tickwheel._context.namespace
    with (
        TaskApp(tickwheel_server.url, namespace=namespace, drive=False) as app,
        asyncio.Runner() as loop,
    ):
        task = app.task(name="send")(send)
        task.with_options(id="done").now()
        [message] = app.declared(task.queue).dequeue()
        message.complete("null")
        task.with_options(id="sent").later(timedelta(hours=1))
        yield AppTargets(tickwheel_server.url, namespace, app, loop)
        loop.run(app.aclose())


@pytest.mark.parametrize("argument", APP_ARGUMENTS)
def test_a_hostile_argument_of_an_app_is_refused_when_it_is_declared(
    argument: str, targets: AppTargets, dump: Callable[[], dict[str, Any]]
) -> None:
    types, call = APP_ARGUMENTS[argument]
    before = dump()
    for value in VALUES:
        error = refusal(lambda: call(targets, value))  # noqa: B023
        fits = isinstance(value, types) and (bool in types or not isinstance(value, bool))
        assert fits or error is not None, f"{argument} accepts {value!r:.80}"
        if error is not None:
            assert isinstance(error, InvalidArgument), f"{type(error).__name__} for {value!r:.80}: {error}"
            assert 10 < len(str(error)) < 1_000, f"{argument} raised {error!s:.1100}"
            assert dump() == before, f"{argument} raised {type(error).__name__} after a change"
        before = dump()


def test_every_argument_of_every_method_is_in_the_table() -> None:
    # `Task.__init__` is left out, because it has the arguments of `TaskApp.task`.
    methods = [*vars(TaskApp).items(), *vars(Task).items()]
    named = set()
    for name, method in methods:
        if inspect.isfunction(method) and (method is TaskApp.__init__ or not name.startswith("_")):
            for argument, parameter in inspect.signature(method).parameters.items():
                if parameter.kind is inspect.Parameter.VAR_KEYWORD and name in PASSED_ON:
                    named |= {f"{name} {passed_on}" for passed_on in PASSED_ON[name]}
                elif argument != "self":
                    named.add(f"{name} {argument}")
    for name, method in (*vars(CallMethods).items(), *vars(TaskHandle).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            named |= {
                f"handle.{name} {argument}" for argument in inspect.signature(method).parameters if argument != "self"
            }
    assert named <= APP_ARGUMENTS.keys()
    # A call that opens the client of an app passes its own timeout.
    client = set(inspect.signature(Tickwheel).parameters) - {"open_timeout"}
    assert PASSED_ON["move"] == client
    assert {f"__init__ {argument}" for argument in client} <= APP_ARGUMENTS.keys()


def test_a_retry_that_is_no_retry_is_refused_with_the_value_and_what_is_allowed() -> None:
    app = TaskApp("redis://localhost")
    retry: Any = timedelta(seconds=1)
    with pytest.raises(InvalidArgument, match=r"retry must be a Retry, not timedelta .*seconds=1.*: pass Retry"):
        app.task(retry=retry)(send)
    assert app.tasks == {}
