"""Java for ZooKeeper and Kafka, found on this machine or installed; and their jars, downloaded once.

pom.xml lists the jars. They are kept in the user's cache, in a folder named by the pom's digest, so that a changed pom
gets a folder of its own.
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
    f"{{cause}}. ZooKeeper and Kafka need Java {_JAVA_MIN} or newer, and Maven to fetch them the first time. On Debian"
    f" and Ubuntu: apt-get install {' '.join(_PACKAGES)}; elsewhere see https://adoptium.net and https://maven.apache.org,"
    " and make java (or JAVA_HOME) and mvn available to this program"
)
# For short runs on small machines: only the quick compiler (C1), the serial garbage collector, and no file of
# performance data in /tmp.
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
    """Return the command that runs a class of the jars with a heap of at most ``heap_mb`` MiB.

    Downloads the jars if necessary, which takes a network and up to a minute. Raises ServiceError with advice if Java
    or the jars are not available.

    The first process that runs ``main_class``, and ends normally or by SIGTERM, leaves an archive of the loaded classes
    next to the jars (class data sharing). With the archive, a start takes half the CPU time. Java ignores an unfinished
    archive and the archive of another Java.
    """
    java, jars = _java(), _jars()
    archive = jars / f"{main_class}-{_version(java)}.jsa"
    sharing = f"-XX:SharedArchiveFile={archive}" if archive.exists() else f"-XX:ArchiveClassesAtExit={archive}"
    return [java, f"-Xmx{heap_mb}m", *_FLAGS, sharing, *_LOGGING, "-cp", f"{jars}/*", main_class, *arguments]


@cache
def _jars() -> Path:
    digest = hashlib.sha256(_POM.read_bytes()).hexdigest()[:16]
    folder = platformdirs.user_cache_path("tickwheel") / f"jars-{digest}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Other processes wait here, and find the jars when they have the lock. If this process dies, its lock ends.
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
    # Renamed when complete, so an interrupted download leaves no folder of jars. The next download first removes the
    # files of the interrupted download.
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
        raise ServiceError(_MISSING.format(cause=f"{program} is Java {_version(program)}"))
    return program


@cache
def _version(program: str) -> int:
    """Return the major version of a Java program; 0 if it is not Java."""
    try:
        output = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except OSError:
        return 0
    # Versions up to 8 are called 1.8 and the like. They are too old in any case.
    match = re.search(r'version "(\d+)', output)
    return int(match[1]) if match else 0


def _install(program: str) -> str:
    """Install a program from Debian packages, and return its path. Raises ServiceError with advice."""
    install(*_PACKAGES, missing=_MISSING.format(cause=f"There is no suitable {program}"))
    path = shutil.which(program)
    if path is None:
        raise ServiceError(_MISSING.format(cause=f"The packages {' and '.join(_PACKAGES)} did not contain {program}"))
    return path
