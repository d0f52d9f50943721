"""CHANGELOG.md has one list of intended breaks, and no remains of a merge."""

import re
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

TEXT = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
PARTS = TEXT.split("\n### ")[1:]
ENTRIES = [" ".join(entry.split()) for part in PARTS for entry in re.split(r"\n(?=- )", part)[1:]]


def test_the_intended_breaks_are_in_one_list() -> None:
    unreleased = TEXT.partition("## [Unreleased]")[2].partition("\n## ")[0]
    assert unreleased.count("\n### Breaking\n") == 1
    assert [entry for entry in ENTRIES if re.search("breaking:", entry, re.IGNORECASE)] == []


def test_every_entry_consists_of_whole_sentences() -> None:
    # The titles of the groups of breaks end with a colon.
    assert [entry for entry in ENTRIES if not re.search(r"[.:]$", entry)] == []
    assert [entry for entry in ENTRIES if re.search(r"[a-z)`]\. [a-z]", entry)] == []


def test_no_sentence_occurs_twice() -> None:
    sentences = Counter(sentence for entry in ENTRIES for sentence in re.split(r"(?<=\.) ", entry))
    assert [sentence for sentence, count in sentences.items() if count > 1 and len(sentence) > 60] == []


def test_no_paragraph_becomes_part_of_the_entry_before_it() -> None:
    assert re.findall(r"(?m)^(?:- |  ).*\n(?=\w)", TEXT) == []
