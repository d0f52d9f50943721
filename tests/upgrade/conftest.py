"""The earlier version, which all tests of a test run share."""

import pytest

from tests.upgrade import released_version


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of the earlier version."""
    return str(released_version.install(tmp_path_factory.mktemp("earlier")))
