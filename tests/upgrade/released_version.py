"""An earlier version of the product, built from its commit and installed into a folder of its own."""

import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Users have namespaces, clients and processes of this version.
COMMIT = "2821acbf3a58e285176cd06fcc2f46e9d63cfb33"


def install(folder: Path) -> Path:
    """Build the wheel of `COMMIT`, and install it into a folder of its own. Return this folder, for PYTHONPATH.

    The dependencies are those of the environment that runs the tests.
    """
    source, site = folder / "source", folder / "site"
    archive = _run("git", "archive", "--format=tar", COMMIT, cwd=ROOT)
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(source, filter="data")
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source), cwd=folder)
    wheel = next(folder.glob("*.whl"))
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(site))
    _run(*pip, str(wheel), cwd=folder)
    return site


def _run(*command: str, cwd: Path) -> bytes:
    done = subprocess.run(command, cwd=cwd, capture_output=True, check=False)
    assert done.returncode == 0, f"{command[:6]} exited with {done.returncode}: {done.stderr.decode()[-2_000:]}"
    return done.stdout
