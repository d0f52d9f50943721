"""The texts that explain --url name every scheme that a client accepts."""

import re
from pathlib import Path

import pytest

from tests.frozen.command_line import tree
from tickwheel.redis.url import SCHEMES as SERVERS
from tickwheel.rpc.url import SCHEMES as SERVICES

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
URLS = [f"{scheme}://" for scheme in (*SERVERS, *SERVICES)]


def urls_missing_in(text: str) -> list[str]:
    words = text.replace("`", " ").replace("(", " ").split()
    return [url for url in URLS if not any(word.startswith(url) for word in words)]


def test_the_help_of_the_program_names_every_scheme() -> None:
    [option] = [parameter for parameter in tree().params if "--url" in parameter.opts]
    assert urls_missing_in(option.help) == []


def test_the_guide_names_every_scheme() -> None:
    section = (ROOT / "docs" / "guide.md").read_text().partition("## Start")[2].partition("\n## ")[0]
    assert urls_missing_in(section) == []


def test_the_guide_lists_the_commands_that_refuse_the_url_of_a_service() -> None:
    commands = ROOT / "scheduler" / "tickwheel" / "cli" / "commands"
    calls = {
        name for file in commands.glob("*.py") for name in re.findall(r'require_redis\("(\w+)"\)', file.read_text())
    }
    # `serve` and `dev` have an error text of their own.
    names = [f"`{name}`" for name in sorted(calls | {"dev", "serve"})]
    sentence = f"The commands {', '.join(names[:-1])} and {names[-1]} work on the server itself"
    assert sentence in " ".join((ROOT / "docs" / "guide.md").read_text().split())
