"""`tickwheel token` prints an entry that the service accepts, with the grants of the options."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tickwheel.cli.app import app
from tickwheel.service.authorization import Grant, Role, digest_of
from tickwheel.service.token_file import read

pytestmark = pytest.mark.security


@pytest.mark.parametrize(
    ("options", "grants"),
    [
        ([], [Grant(frozenset({Role.PRODUCE, Role.CONSUME}), ("*",), ("tw",))]),
        (["--grant", "read"], [Grant(frozenset({Role.READ}), ("*",), ("tw",))]),
        (
            ["--grant", "consume:mail.*", "--grant", "produce,admin:orders,reports:tw,stage-[ab]"],
            [
                Grant(frozenset({Role.CONSUME}), ("mail.*",), ("tw",)),
                Grant(frozenset({Role.PRODUCE, Role.ADMIN}), ("orders", "reports"), ("tw", "stage-[ab]")),
            ],
        ),
    ],
    ids=["none", "one", "two"],
)
def test_the_printed_entry_has_the_grants_of_the_options(
    tmp_path: Path, options: list[str], grants: list[Grant]
) -> None:
    result = CliRunner().invoke(app, ["token", 'the "shop"', *options])
    assert result.exit_code == 0, result.output
    token, _, entry = result.stdout.partition("\n")
    (tmp_path / "tokens").touch(0o600)
    (tmp_path / "tokens").write_text(entry)
    [caller] = read(tmp_path / "tokens")
    assert (caller.name, caller.digest, list(caller.grants)) == ('the "shop"', digest_of(token), grants)


NAMES = [
    "mail-😀",
    "\x7f",
    "\0\t\r\n\x1b",
    'a"\\"""',
    r"\u0041",
    "é\u2028\ufffe",
    "'''",
    "\ud7ff\ue000\U0010ffff",
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_the_service_accepts_the_printed_entry_of_every_name(tmp_path: Path, name: str) -> None:
    result = CliRunner().invoke(app, ["token", "--", name])
    assert result.exit_code == 0, result.output
    _, _, entry = result.stdout.partition("\n")
    (tmp_path / "tokens").touch(0o600)
    (tmp_path / "tokens").write_text(entry, "ascii")
    assert [caller.name for caller in read(tmp_path / "tokens")] == [name]


def test_a_name_that_is_no_text_is_refused() -> None:
    result = CliRunner().invoke(app, ["token", "a\udcffb"])
    assert result.exit_code == 2
    assert r"NAME must be valid Unicode text, not 'a\udcffb'" in result.stderr


def test_the_json_has_the_grants_too() -> None:
    result = CliRunner().invoke(app, ["token", "shop", "--json", "--grant", "read:a"])
    assert json.loads(result.stdout)["grants"] == [{"roles": ["read"], "queues": ["a"]}]


@pytest.mark.parametrize(
    ("grant", "message"),
    [
        ("write", "a role of grant 1 of the token must be one of produce, consume, admin, read, not 'write'"),
        ("", "a role of grant 1 of the token must be one of"),
        ("read:a b", "queues of grant 1 of the token has 'a b', which no name matches"),
        ("read:", "queues of grant 1 of the token has '', which no name matches"),
        ("read:a:tw:x", "--grant must be ROLES[:QUEUES[:NAMESPACES]], not 'read:a:tw:x'"),
    ],
)
def test_an_invalid_grant_is_refused(grant: str, message: str) -> None:
    result = CliRunner().invoke(app, ["token", "shop", "--grant", grant])
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
