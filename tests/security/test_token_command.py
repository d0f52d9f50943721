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
        (["--namespace", "native"], [Grant(frozenset({Role.PRODUCE, Role.CONSUME}), ("*",), ("native",))]),
        (
            ["--namespace", "native", "--grant", "read", "--grant", "consume:mail:tw"],
            [Grant(frozenset({Role.READ}), ("*",), ("native",)), Grant(frozenset({Role.CONSUME}), ("mail",), ("tw",))],
        ),
        (
            ["--grant", "admin:mail", "--grant", "produce:sms", "--sinks", "mail.*", "--sinks", "reports"],
            [
                Grant(frozenset({Role.ADMIN}), ("mail",), ("tw",), ("mail.*", "reports")),
                Grant(frozenset({Role.PRODUCE}), ("sms",), ("tw",)),
            ],
        ),
    ],
    ids=["none", "one", "two", "namespace", "grants-and-namespace", "sinks"],
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


def test_with_out_the_entries_are_appended_to_a_private_file_and_only_the_token_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    printed = []
    for name, *options in (("shop",), ("mail", "--grant", "consume:mail.*"), ("reports",)):
        result = CliRunner().invoke(app, ["token", name, *options, "--out", str(file)])
        assert result.exit_code == 0, result.output
        printed.append(result.stdout.rstrip("\n"))
    assert file.stat().st_mode & 0o777 == 0o600
    assert [(caller.name, caller.digest) for caller in read(file)] == [
        (name, digest_of(token)) for name, token in zip(("shop", "mail", "reports"), printed, strict=True)
    ]
    assert not any(token in file.read_text() for token in printed)


def test_an_entry_is_not_appended_to_a_file_that_others_can_change(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.touch()
    file.chmod(0o666)
    result = CliRunner().invoke(app, ["token", "shop", "--out", str(file)])
    assert result.exit_code == 1
    assert str(file) in result.stderr
    assert file.read_text() == ""


@pytest.mark.parametrize(
    ("present", "message"),
    [
        ("", "must not have two tokens named 'shop', because the log could not distinguish them: give one of them"),
        ("[[tok", "is not valid TOML"),
        ("\xff", "is not valid TOML"),
    ],
)
def test_an_entry_that_would_make_the_file_invalid_is_not_appended(tmp_path: Path, present: str, message: str) -> None:
    file = tmp_path / "tokens"
    assert CliRunner().invoke(app, ["token", "shop", "--out", str(file)]).exit_code == 0
    before = file.read_bytes() + present.encode("latin-1")
    file.write_bytes(before)
    result = CliRunner().invoke(app, ["token", "shop", "--out", str(file)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{file} {message}" in " ".join(result.stderr.split())
    assert file.read_bytes() == before


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
    result = CliRunner().invoke(app, ["token", "shop", "--json", "--namespace", "native"])
    assert json.loads(result.stdout)["namespaces"] == ["native"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sinks", "mail"], "--sinks needs a --grant with the role admin, for example --grant admin:mail"),
        (["--sinks", "mail", "--grant", "produce"], "--sinks needs a --grant with the role admin"),
        (["--sinks", "a b", "--grant", "admin"], "sinks of grant 1 of the token has 'a b', which no name matches"),
    ],
)
def test_sinks_without_a_grant_that_could_set_them_and_invalid_patterns_are_refused(
    options: list[str], message: str
) -> None:
    result = CliRunner().invoke(app, ["token", "shop", *options])
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_a_namespace_that_no_namespace_can_have_is_refused() -> None:
    result = CliRunner().invoke(app, ["token", "shop", "--namespace", "*"])
    assert result.exit_code == 2
    assert "namespace" in result.stderr


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
