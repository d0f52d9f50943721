"""What processes under test left in a folder: what their tasks wrote down, and their log."""

from pathlib import Path


class ProcessRecords:
    """``record_path`` is for tasks to append lines to, ``log_path`` for what their processes say."""

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
