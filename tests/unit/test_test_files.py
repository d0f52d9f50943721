"""The test files: their names are unique, and the files in the lists exist."""

from collections import Counter

import pytest

from tests.integration.conftest import ON_A_CLUSTER
from tests.support.file_order import SLOW_FILES, TESTS, WAITING_FILES

pytestmark = pytest.mark.unit


def test_no_two_test_files_have_the_same_name() -> None:
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, files in names.items() if files > 1] == []


def test_the_slow_and_the_waiting_files_exist() -> None:
    assert [name for name in (*SLOW_FILES, *WAITING_FILES) if not (TESTS / name).is_file()] == []


def test_the_files_that_run_on_a_cluster_exist() -> None:
    assert [name for name in ON_A_CLUSTER if not (TESTS / "integration" / f"{name}.py").is_file()] == []
