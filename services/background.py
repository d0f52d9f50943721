"""Services that outlive the program that started them: which there are, and their end.

They are written down in one file of a folder, which is the proof that the folder is theirs; every process that was
started in there has the folder in its command, which is the proof that a number still is the process it was.
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
    """What runs: ``addresses`` by service, and process numbers by the name of the server.

    A service keeps its data in the folder of its name. Its address is empty, and there are no numbers, until all serve.
    """

    addresses: dict[str, str]
    pids: dict[str, int]


def claim(folder: Path, services: Sequence[str]) -> None:
    """Make the folder theirs, without data. ServiceError, changing nothing, where it holds what is not of them."""
    if load_record(folder) is None and folder.exists() and not (folder.is_dir() and _is_empty(folder)):
        raise ServiceError(
            f"{folder} is not empty, and not of the services: set TICKWHEEL_SERVICES_DIR to another folder"
        )
    stop_all(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not _is_empty(folder):
        raise ServiceError(f"{folder} holds what is not of the services: {', '.join(sorted(os.listdir(folder)))}")
    _write(folder, BackgroundServices(dict.fromkeys(services, ""), {}))


def record(folder: Path, addresses: Mapping[str, str], processes: Sequence[Process]) -> None:
    """Write down what was started in the folder, and let it go: it outlives this program."""
    _write(folder, BackgroundServices(dict(addresses), {process.name: process.pid for process in processes}))
    for process in processes:
        process.detach()


def load_record(folder: Path) -> BackgroundServices | None:
    """What was started in the folder, whether it still runs or not; None where nothing was."""
    try:
        return BackgroundServices(**json.loads(_path(folder).read_text()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (TypeError, ValueError) as error:
        raise ServiceError(f"{_path(folder)} was not written by the services: {error}") from error


def is_running(folder: Path, pid: int) -> bool:
    """Whether that process is there, and is one that was started in the folder."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        # Not there, or a system without /proc.
        ps_command = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        command = (
            "" if Path("/proc/self").exists() else subprocess.run(ps_command, capture_output=True, text=True).stdout
        )
    return f"{folder}{os.sep}" in command


def list_exited(folder: Path) -> list[str]:
    """The servers that were started in the folder and do not run any more, by name."""
    services = load_record(folder)
    return [] if services is None else [name for name, pid in services.pids.items() if not is_running(folder, pid)]


def stop_all(folder: Path) -> None:
    """End what was started in the folder, by SIGTERM and else by SIGKILL, and remove its data, and nothing else."""
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
        raise ServiceError(f"of the processes {', '.join(map(str, pids))} some do not end; {folder} is left as it is")
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
