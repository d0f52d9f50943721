"""Java for the servers that need it: found on this machine or installed, and their jars, fetched once.

The jars are those of pom.xml, in the user's cache in a folder named by the pom's digest: a changed pom gets its own.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import platformdirs

from services.apt import install, run
from services.process import ServiceError
from tickwheel.embedded.file_lock import FileLock

_POM = Path(__file__).with_name("pom.xml")
_JAVA_MIN = 17
_FETCH_S = 900.0
_PACKAGES = ("default-jre-headless", "maven")
_MISSING = (
    f"{{what}}. ZooKeeper and Kafka need Java {_JAVA_MIN} or newer, and Maven to fetch them the first time. On Debian"
    f" and Ubuntu: apt-get install {' '.join(_PACKAGES)}; elsewhere see https://adoptium.net and https://maven.apache.org,"
    " and have java (or JAVA_HOME) and mvn found by this program"
)
# Short lives on small machines: the first compiler only, the collector without threads, and no file in /tmp that
# others read and that must be written for it.
_FLAGS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",
)
_LOGGING = (
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
)


def java_command(main_class: str, *arguments: str, heap_mb: int) -> list[str]:
    """The command that runs a class of the jars with a heap of ``heap_mb`` MiB at most.

    Fetches the jars where they are not there yet, which takes a network and up to a minute. Raises ServiceError
    where Java or the jars cannot be had, and says what to do.
    """
    jars = _jars()
    return [_java(), f"-Xmx{heap_mb}m", *_FLAGS, *_LOGGING, "-cp", f"{jars}/*", main_class, *arguments]


@cache
def _jars() -> Path:
    digest = hashlib.sha256(_POM.read_bytes()).hexdigest()[:16]
    folder = platformdirs.user_cache_path("tickwheel") / f"jars-{digest}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Whoever waits here finds them there afterwards; a lock ends with its process, however that ends.
        lock = FileLock(folder.with_suffix(".lock"))
        lock.acquire_exclusive(_FETCH_S)
        try:
            if not folder.exists():
                _fetch(folder)
        finally:
            lock.release()
    return folder


def _fetch(folder: Path) -> None:
    maven = shutil.which("mvn") or _install("mvn")
    # Renamed when complete: a fetch that broke off leaves nothing that looks like the jars, and is swept away here.
    fetched = folder.with_suffix(".fetched")
    shutil.rmtree(fetched, ignore_errors=True)
    print("Fetching ZooKeeper and Kafka (50 MB, once) ...", file=sys.stderr)
    goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={fetched}")
    run(maven, "--quiet", "--batch-mode", "--file", str(_POM), *goal)
    fetched.rename(folder)


@cache
def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    candidates = [f"{home}/bin/java" if home else None, shutil.which("java")]
    for program in candidates:
        if program and _version(program) >= _JAVA_MIN:
            return program
    program = _install("java")
    if _version(program) < _JAVA_MIN:
        raise ServiceError(_MISSING.format(what=f"{program} is Java {_version(program)}"))
    return program


def _version(program: str) -> int:
    """The major version of a Java; 0 where it is none."""
    try:
        output = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except OSError:
        return 0
    # Up to 8 they were called 1.8 and the like: too old in any case.
    match = re.search(r'version "(\d+)', output)
    return int(match[1]) if match else 0


def _install(program: str) -> str:
    """The program, from Debian's packages, where they can be installed."""
    install(*_PACKAGES, missing=_MISSING.format(what=f"There is no {program} that serves"))
    path = shutil.which(program)
    if path is None:
        raise ServiceError(_MISSING.format(what=f"The packages {' and '.join(_PACKAGES)} brought no {program}"))
    return path
