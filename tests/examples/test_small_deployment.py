"""The smallest set-up: its processes run with the options of its files, and every task runs although each is killed."""

import os
import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from services.process import HOST, Process, free_port
from services.valkey import ValkeyServer
from tests.support.wait_until import eventually
from tickwheel import MessageNotFound, Tickwheel

pytestmark = pytest.mark.examples

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "deploy/small"
SERVICES: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
# Longer than a lease, a takeover of the timing wheel, and a restart on a busy machine.
RUN_S: Final = 120.0


def unit_command(process: str) -> list[str]:
    """Return the arguments of `tickwheel` in a unit."""
    unit = (FOLDER / f"tickwheel-{process}.service").read_text()
    [command] = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    return shlex.split(command)[1:]


COMMANDS: Final[dict[str, dict[str, list[str]]]] = {
    "compose": {name: shlex.split(SERVICES[name]["command"]) for name in ("worker-1", "worker-2", "serve")},
    "systemd": {
        "worker-1": unit_command("worker@"),
        "worker-2": unit_command("worker@"),
        "serve": unit_command("serve"),
    },
}


class SmallDeployment:
    """The processes of the set-up on this machine. Hosts and ports differ from those of the files."""

    def __init__(self, folder: Path, commands: Mapping[str, list[str]]) -> None:
        options = pairwise(shlex.split(SERVICES["valkey"]["command"]))
        settings = {name.removeprefix("--"): value for name, value in options if name.startswith("--")}
        settings.pop("port")
        self.server = ValkeyServer("valkey", folder, settings)
        address = f"{HOST}:{free_port()}"
        self.programs = {
            name: self._program(folder, name, [*_with_address(command, address)], self.server.url)
            for name, command in commands.items()
        }
        self.producer = Process(
            "producer",
            [sys.executable, *SERVICES["producer"]["entrypoint"][1:]],
            folder,
            lambda: bool(self.sent),
            environment={"TICKWHEEL_URL": f"grpc://{address}"},
            cwd=FOLDER,
        )

    @staticmethod
    def _program(folder: Path, name: str, command: list[str], url: str) -> Process:
        ready_when = "serving grpc" if name == "serve" else '"working"'
        environment = {"TICKWHEEL_URL": url, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "tickwheel", *command]
        return Process(name, command, folder, ready_when, environment=environment, cwd=FOLDER)

    @property
    def sent(self) -> list[str]:
        """The ids of all messages that the producer has sent since its last start."""
        # A line without its end may be written in part.
        return re.findall(r"^sent (\S+)\n", self.producer.log, re.MULTILINE)

    def wait_until_run(self) -> None:
        """Wait until all messages that were sent so far are completed."""
        ids = self.sent
        assert ids
        with Tickwheel(self.server.url, drive=False) as tickwheel:
            queue = tickwheel.queue("orders")

            def state(id_: str) -> str:
                try:
                    return queue.get(id_).state
                except MessageNotFound:
                    return "lost"

            eventually(lambda: all(state(id_) == "completed" for id_ in ids), f"{len(ids)} tasks have run", RUN_S, 0.1)


def _with_address(command: list[str], address: str) -> list[str]:
    """Return the command with another address of the service."""
    return [address if before == "--listen" else word for before, word in pairwise(["", *command])]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("files", COMMANDS)
def test_every_task_runs_while_each_process_is_killed_and_restarted(files: str, tmp_path: Path) -> None:
    deployment = SmallDeployment(tmp_path, COMMANDS[files])
    with ExitStack() as stack:
        for process in (deployment.server, *deployment.programs.values(), deployment.producer):
            stack.enter_context(process)
        deployment.wait_until_run()
        for process in (*deployment.programs.values(), deployment.server):
            before = len(deployment.sent)
            process.kill()
            if process in (deployment.programs["worker-1"], deployment.programs["worker-2"]):
                # The others do the work of the killed worker.
                eventually(lambda: len(deployment.sent) > before, "the producer goes on", RUN_S)  # noqa: B023
                deployment.wait_until_run()
            process.start()
            eventually(lambda: len(deployment.sent) > before, "the producer goes on", RUN_S)  # noqa: B023
            deployment.wait_until_run()
        deployment.producer.kill()
        deployment.producer.start()
        deployment.wait_until_run()


def test_the_page_names_every_file_of_the_set_up() -> None:
    page = (ROOT / "docs/smallest-set-up.md").read_text()
    for file in FOLDER.iterdir():
        if file.is_file():
            assert f"(../deploy/small/{file.name})" in page


def test_every_program_has_15_seconds_after_its_drain_time_until_it_is_killed() -> None:
    units = {name: (FOLDER / f"tickwheel-{name}.service").read_text() for name in ("worker@", "serve")}
    killed_after = {
        **{name: (SERVICES[name]["command"], SERVICES[name]["stop_grace_period"]) for name in COMMANDS["compose"]},
        **{name: (unit, re.findall(r"^TimeoutStopSec=(.*)$", unit, re.MULTILINE)[0]) for name, unit in units.items()},
    }
    for name, (command, seconds) in killed_after.items():
        [drain_s] = re.findall(r"--drain ([0-9]+)s", command)
        assert int(seconds.removesuffix("s")) == int(drain_s) + 15, name
