"""With --json, every program prints JSON alone: each line of its standard output and standard error is a document."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from services.process import Process, free_port
from services.serving_program import SERVE, ServingProgram
from tests.integration.cli.command_runner import ENDS_S, TICKWHEEL
from tests.integration.service_thread import ServiceThread
from tickwheel.cli.app import _PANELS
from tickwheel.service.tls import credentials
from tickwheel.testing import PrivateServer

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
CERTS = ROOT / "tests" / "fault" / "certs"
# The arguments of each program, and a text of its output that shows that it works; "" if the program
# ends without a signal.
PROGRAMS: dict[str, tuple[str, str]] = {
    "serve": ("serve --listen 127.0.0.1:0", "serving grpc://"),
    "serve --processes": ("serve --processes 2 --listen 127.0.0.1:0", "serving grpc://"),
    "dev": ("dev --listen 127.0.0.1:{port} --data-dir {folder}/data", "serving grpc://"),
    "events": ("events", "elected"),
    "worker": ("worker tests.fault.worker_app:app", '"working"'),
    "load": (
        "load order-timeouts --scale 0.00001 --start 12h --length 10m --speed-up 600 --report {folder}/report.html",
        "",
    ),
    "demo": ("demo --seconds 3", ""),
    "bench": ("bench --messages 100", ""),
}
# These commands of the same panel end at once, and start no process.
SHORT = {"token", "acl", "shards"}


def test_every_program_is_in_the_table() -> None:
    assert set(_PANELS["Processes"]) - SHORT == {name.split()[0] for name in PROGRAMS}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_prints_json_alone(
    program: str, tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    words, ready_when = PROGRAMS[program]
    environment = {
        "TICKWHEEL_URL": "" if program == "dev" else tickwheel_server.url,
        "TICKWHEEL_NAMESPACE": "" if program in ("load", "demo", "bench") else namespace,
        "TICKWHEEL_DATA_DIR": "",
    }
    arguments = words.format(folder=tmp_path, port=free_port()).split()
    with Process(
        program, [*TICKWHEEL, *arguments, "--json"], tmp_path, ready_when, environment=environment, cwd=ROOT
    ) as process:
        if ready_when:
            process.stop(ENDS_S)
        else:
            process.wait(120)
        assert_json(process.log)


@pytest.mark.parametrize("program", ["serve", "events", "worker", "counts", "load"])
def test_an_error_is_a_json_document_too(program: str, tmp_path: Path) -> None:
    words = PROGRAMS[program][0] if program in PROGRAMS else program
    command = [*TICKWHEEL, *words.format(folder=tmp_path).split(), "--json", "--timeout", "100ms"]
    environment = os.environ | {"TICKWHEEL_URL": "redis://127.0.0.1:1", "TICKWHEEL_DATA_DIR": ""}
    if program in ("serve", "worker"):
        # These programs wait for their server.
        environment["TICKWHEEL_NAMESPACE"] = "not{allowed}"
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=ENDS_S, check=False
    )
    assert done.returncode in (2, 3), done
    errors = assert_json(done.stdout + done.stderr)
    assert errors[-1]["level"] == "ERROR"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("nonsense --json", "No such command 'nonsense'"),
        ("counts --json --nonsense", "No such option: --nonsense"),
        ("--json dequeue", "Missing argument"),
        ("dequeue jobs --wait soon --json", "a duration is written like"),
        ("queue nonsense --json", "No such command 'nonsense'"),
    ],
)
def test_an_error_of_the_command_line_is_a_json_document_too(words: str, text: str) -> None:
    done = subprocess.run([*TICKWHEEL, *words.split()], capture_output=True, text=True, timeout=ENDS_S, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    [error] = assert_json(done.stderr)
    assert error["level"] == "ERROR"
    assert text in str(error["text"])


@pytest.mark.parametrize("words", [["--nonsense"], ["enqueue", "jobs", "--nonsense", "--", "--json"]])
def test_an_error_of_the_command_line_is_text_without_the_option(words: list[str]) -> None:
    done = subprocess.run([*TICKWHEEL, *words], capture_output=True, text=True, timeout=ENDS_S, check=False)
    assert done.returncode == 2
    assert "Usage: " in done.stderr


@pytest.mark.parametrize("words", ["--version --json", "--help --json", "queue create --help --json"])
def test_help_and_version_are_no_errors(words: str) -> None:
    done = subprocess.run([*TICKWHEEL, *words.split()], capture_output=True, text=True, timeout=ENDS_S, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("option", [[], ["--json"]], ids=["text", "json"])
def test_the_library_of_grpc_writes_no_lines_of_its_own(option: list[str], tickwheel_server: PrivateServer) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"}
    tls = credentials(CERTS / "server.pem", CERTS / "server-key.pem", None)
    with ServiceThread(tickwheel_server.url, credentials=tls) as service:
        environment["TICKWHEEL_URL"] = f"grpcs://{service.target}?tls_ca={CERTS / 'stranger.pem'}"
        command = [*TICKWHEEL, "counts", *option]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=ENDS_S, check=False)
    [line] = done.stderr.splitlines()
    assert "does not trust the server's certificate" in (json.loads(line)["text"] if option else line)


def test_the_service_logs_its_address_once_with_several_processes(
    tickwheel_server: PrivateServer, namespace: str, tmp_path: Path
) -> None:
    environment = {"TICKWHEEL_NAMESPACE": namespace}
    arguments = [*SERVE, tickwheel_server.url, "--processes", "2"]
    with ServingProgram(tmp_path, *arguments, environment=environment) as service:
        [line] = [line for line in service.log.splitlines() if service.url in line]
        assert f"INFO tickwheel.service: serving {service.url}, with {tickwheel_server.url}" in line
    with ServingProgram(tmp_path, *arguments, "--json", environment=environment) as service:
        [document] = [each for each in assert_json(service.log) if service.url in str(each["text"])]
        port = int(service.target.rpartition(":")[2])
        assert (document["event"], document["port"]) == ("serving", port)


def assert_json(output: str) -> list[dict[str, object]]:
    lines = output.splitlines()
    assert lines
    return [json.loads(line) for line in lines]
