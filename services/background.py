"""Services that outlive the program that started them: their record, and their end.

The record is a file in a folder. The file proves that the folder belongs to the services. The command line of every
process that was started there contains the path of the folder. So a process id in the record that now belongs to
another process is recognised.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from services.process import Process, ServiceError, wait_until

_STOP_S = 20.0


@dataclass(frozen=True)
class BackgroundServices:
    """Services that were started: ``addresses`` by service, and process ids by server (a service can have several).

    A service keeps its data in the folder of its name. Until all services are ready, addresses are empty, and there are
    no process ids.
    """

    addresses: dict[str, str]
    pids: dict[str, int]


def claim(folder: Path, services: Sequence[str]) -> None:
    """Empty the folder for services: end those that run there, and delete their data.

    Raises ServiceError if the folder contains other files. Without a record of services, it then changes nothing.
    """
    if load_record(folder) is None and folder.exists() and not (folder.is_dir() and _is_empty(folder)):
        raise ServiceError(
            f"{folder} is not empty, and does not belong to the services: set TICKWHEEL_SERVICES_DIR to another folder"
        )
    stop_all(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not _is_empty(folder):
        raise ServiceError(f"{folder} contains files of others: {', '.join(sorted(os.listdir(folder)))}")
    _write(folder, BackgroundServices(dict.fromkeys(services, ""), {}))


def record(folder: Path, addresses: Mapping[str, str], processes: Sequence[Process]) -> None:
    """Record the services of the folder, and detach them, so that they outlive this program."""
    _write(folder, BackgroundServices(dict(addresses), {process.name: process.pid for process in processes}))
    for process in processes:
        process.detach()


def load_record(folder: Path) -> BackgroundServices | None:
    """Return the services started in the folder, running or not; None if there is no record."""
    try:
        return BackgroundServices(**json.loads(_path(folder).read_text()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (TypeError, ValueError) as error:
        raise ServiceError(f"{_path(folder)} was not written by the services: {error}") from error


def is_running(folder: Path, pid: int) -> bool:
    """Return whether the process runs and was started in the folder."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        # The process does not exist, or the system has no /proc.
        ps_command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        command = (
            "" if Path("/proc/self").exists() else subprocess.run(ps_command, capture_output=True, text=True).stdout
        )
    return f"{folder}{os.sep}" in command


def list_exited(folder: Path) -> list[str]:
    """Return the names of the servers that were started in the folder and have ended."""
    services = load_record(folder)
    return [] if services is None else [name for name, pid in services.pids.items() if not is_running(folder, pid)]


def stop_all(folder: Path) -> None:
    """Stop the services of the folder, by SIGTERM and then SIGKILL, and delete their data, and nothing else."""
    services = load_record(folder)
    if services is None:
        return
    pids = services.pids.values()
    for signal_number in (signal.SIGCONT, signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            if is_running(folder, pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal_number)
        if signal_number != signal.SIGCONT:
            with suppress(ServiceError):
                wait_until(lambda: not any(is_running(folder, pid) for pid in pids), "all have ended", _STOP_S)
    if any(is_running(folder, pid) for pid in pids):
        raise ServiceError(f"some of the processes {', '.join(map(str, pids))} do not end; {folder} is left unchanged")
    for service in services.addresses:
        shutil.rmtree(folder / service, ignore_errors=True)
    _path(folder).unlink()
    if _is_empty(folder):
        folder.rmdir()


def _write(folder: Path, services: BackgroundServices) -> None:
    new = _path(folder).with_suffix(".new")
    new.write_text(json.dumps(asdict(services), indent=2) + "\n")
    new.replace(_path(folder))


def _is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


def _path(folder: Path) -> Path:
    return folder / "running.json"
