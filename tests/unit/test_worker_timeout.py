"""The client's timeout in a worker process: the command line, then the app, then the environment."""

from datetime import timedelta
from typing import Any

import pytest

from tickwheel.worker.process import ProcessConfig, timeout_option

pytestmark = pytest.mark.unit

HOUR = {"timeout": timedelta(hours=1)}


@pytest.mark.parametrize(
    ("option_s", "environment_s", "app", "timeout_s"),
    [
        (2.0, None, {}, 2.0),
        (2.0, 3.0, HOUR, 2.0),
        (None, 3.0, {}, 3.0),
        (None, 3.0, HOUR, None),
        (None, None, HOUR, None),
        (None, None, {}, 30.0),
        (None, None, {"timeout": None}, 30.0),
    ],
)
def test_the_option_replaces_the_timeout_of_the_app_which_replaces_the_environment(
    option_s: float | None, environment_s: float | None, app: dict[str, Any], timeout_s: float | None
) -> None:
    config = ProcessConfig(
        app="",
        shared_state_fd=-1,
        report_fd=-1,
        consumers=1,
        selector="",
        queues=None,
        client_options={},
        timeout_s=option_s,
        default_timeout_s=environment_s,
        memory_limit=None,
        drain_s=0,
        json=False,
        verbose=False,
    )
    assert timeout_option(config, app) == ({} if timeout_s is None else {"timeout": timedelta(seconds=timeout_s)})
