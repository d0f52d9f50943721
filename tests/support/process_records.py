"""The records that the tasks of processes under test append to a file."""

from pathlib import Path


class ProcessRecords:
    """Tasks append lines to ``record_path``."""

    def __init__(self, folder: Path) -> None:
        self.record_path = folder / "record.txt"
        self.record_path.touch()

    @property
    def record(self) -> list[list[str]]:
        """The words of each line."""
        return [line.split() for line in self.record_path.read_text().splitlines()]
