"""Files of processes under test: the lines that their tasks have recorded, and their log."""

from pathlib import Path


class ProcessRecords:
    """Tasks append lines to ``record_path``; the log of their processes goes to ``log_path``."""

    def __init__(self, folder: Path) -> None:
        self.record_path, self.log_path = folder / "record.txt", folder / "processes.log"
        self.record_path.touch()

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    @property
    def record(self) -> list[list[str]]:
        """The words of each line."""
        return [line.split() for line in self.record_path.read_text().splitlines()]
