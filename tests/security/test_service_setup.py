"""`tickwheel serve` with incomplete or invalid options: it reports the problem, exits with 2, and never listens."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.process import free_port
from tests.security.tokens import entry
from tickwheel.cli.app import app

pytestmark = pytest.mark.security

CERTS = Path(__file__).parents[1] / "fault" / "certs"
TOKEN, OTHER = "tw_One-Of-A-Setup", "tw_Other-Of-A-Setup"
GOOD = entry(TOKEN, '["produce"]')
Files = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with certificates and keys. In options, {cert}, {key} and so on stand for the paths of the files."""
    for name, source in (("cert", "server.pem"), ("key", "server-key.pem"), ("stranger", "stranger.pem")):
        (tmp_path / name).write_bytes((CERTS / source).read_bytes())
        (tmp_path / name).chmod(0o600)
    (tmp_path / "empty").write_text("")
    (tmp_path / "empty").chmod(0o600)
    os.mkfifo(tmp_path / "pipe", 0o600)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--tls-cert {cert}", "give both --tls-cert and --tls-key"),
        ("--tls-key {key}", "give both --tls-cert and --tls-key"),
        ("--tls-client-ca {cert}", "it needs --tls-cert and --tls-key"),
        ("--tls-client-ca {cert} --tls-key {key}", "give both --tls-cert and --tls-key"),
        ("--tls-cert {cert} --tls-key {none}", "TLS cannot be used with"),
        ("--tls-cert {none} --tls-key {key}", "TLS cannot be used with"),
        ("--tls-cert {cert} --tls-key {empty}", "TLS cannot be used with"),
        ("--tls-cert {stranger} --tls-key {key}", "TLS cannot be used with"),
        ("--tls-cert {key} --tls-key {cert}", "TLS cannot be used with"),
        ("--tls-cert {cert} --tls-key {key} --tls-client-ca {none}", "TLS cannot be used with"),
        ("--tls-cert {cert} --tls-key {key} --tls-client-ca {empty}", "TLS cannot be used with"),
        ("--tls-cert {cert} --tls-key {key} --tokens {none}", "cannot be read"),
        ("--tls-cert {cert} --tls-key {key} --tokens {folder}", "cannot be read: it must be a regular file"),
        ("--tls-cert {cert} --tls-key {key} --tokens {pipe}", "a symbolic link to one, and is a pipe"),
        ("--tls-cert {cert} --tls-key {pipe}", "a symbolic link to one, and is a pipe"),
        ("--tls-cert {pipe} --tls-key {key}", "a symbolic link to one, and is a pipe"),
        ("--tls-cert {cert} --tls-key {key} --tls-client-ca {pipe}", "a symbolic link to one, and is a pipe"),
        ("--tokens {empty}", "must contain at least one [[token]] table"),
        ("--max-connections 0", "--max-connections"),
        ("--max-waiting 0", "--max-waiting"),
        ("--max-shards 0", "--max-shards"),
        ("--processes 0", "--processes"),
        ("--tokens {empty} --processes 2", "must contain at least one [[token]] table"),
        ("--tls-cert {cert} --processes 2", "give both --tls-cert and --tls-key"),
        ("--listen 0.0.0.0:0", "without encryption"),
        ("--listen 0.0.0.0:0 --insecure --tokens {empty}", "would be sent unencrypted to 0.0.0.0:0"),
        ("--listen [::]:0", "without encryption"),
    ],
)
def test_inconsistent_or_missing_options_are_refused(folder: Path, options: str, message: str) -> None:
    arguments = options.format(
        folder=folder, **{name: folder / name for name in ("cert", "key", "stranger", "empty", "none", "pipe")}
    )
    check_refused(arguments.split(), message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace('"produce"', '"reader"'), "must be one of produce, consume, admin, read, not 'reader'"),
        (GOOD.replace('roles = ["produce"]', ""), "roles of token 1"),
        (GOOD + 'queues = ["orders/*"]', "has 'orders/*', which no name matches"),
        (GOOD + 'queues = [""]', "which no name matches"),
        (GOOD + "queues = []", "queues of token 1"),
        (GOOD + 'namespaces = ["a b"]', "which no name matches"),
        (GOOD + 'sinks = ["mail"]', "sinks of token 1 of {file} needs the role admin, which sets the sink of a queue"),
        (GOOD + "sinks = 1", "sinks of token 1 of {file} must be a list of strings, not 1"),
        (GOOD + 'sinks = ["a/b"]', "has 'a/b', which no name matches"),
        (GOOD + GOOD, "contains the same sha256 twice"),
        (GOOD + entry(OTHER, '["consume"]').replace(OTHER[3:], TOKEN[3:]), "must not have two tokens named"),
        (GOOD.replace("sha256", "sha-256"), "has no setting 'sha-256'"),
        (GOOD.replace('sha256 = "', 'sha256 = "0'), "has no sha256 of 64 hexadecimal digits"),
        (GOOD + 'token = "tw_plain"', "has no setting 'token'"),
        (GOOD + "expires = 2027-01-01", "must be a time with its zone"),
        (GOOD + "messages_per_second = -1", "must be a whole number from 1"),
        ("[[token]\n", "is not valid TOML"),
        pytest.param(f"{GOOD}waiting = {'9' * 5_000}", "is not valid TOML: Exceeds the limit", id="integer"),
        pytest.param(f"{GOOD}waiting = 0x{'f' * 5_000}", "must be a whole number from 1 to", id="hexadecimal"),
        pytest.param(f"{GOOD}waiting = {'[' * 5_000}", "is not valid TOML: the TOML is nested too deeply", id="nested"),
    ],
)
def test_an_invalid_token_file_is_refused(folder: Path, text: str, message: str) -> None:
    file = folder / "tokens"
    file.write_text(text)
    file.chmod(0o600)
    check_refused(["--tokens", str(file)], message.replace("{file}", str(file)))


@pytest.mark.parametrize("mode", [0o604, 0o602])
@pytest.mark.parametrize("name", ["key", "tokens"])
def test_a_secret_file_that_others_can_read_is_refused(folder: Path, name: str, mode: int) -> None:
    (folder / "tokens").write_text(GOOD)
    (folder / "tokens").chmod(0o600)
    (folder / name).chmod(mode)
    options = ["--tls-cert", folder / "cert", "--tls-key", folder / "key", "--tokens", folder / "tokens"]
    check_refused(list(map(str, options)), "is accessible to every user of this machine")


def check_refused(options: list[str], message: str) -> None:
    port = free_port()
    listen = [] if "--listen" in options else ["--listen", f"127.0.0.1:{port}"]
    # No server listens at this address. The service connects only after all options are valid.
    command = ["serve", "--url", f"redis://127.0.0.1:{free_port()}", *listen, *options]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "300"})
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.output.split())
    assert TOKEN not in done.output
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), 5).close()
