"""A data directory, and programs that open it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.embedded.programs import Program, StartProgram
from tickwheel.embedded.valkey_process import ValkeyProcess


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "data"
    yield directory
    ValkeyProcess(directory, directory).kill()


@pytest.fixture
def start_program(data_dir: Path) -> Iterator[StartProgram]:
    programs = []

    def start(appendfsync: str = "always") -> Program:
        programs.append(Program(data_dir, appendfsync))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()
