"""The .proto files: they follow buf's rules, break no released client, and match the generated code."""

import subprocess
import sys
from pathlib import Path

import pytest

from tickwheel import errors
from tickwheel.errors import TickwheelError
from tickwheel.rpc.methods import METHODS, SERVICES
from tickwheel.rpc.status import reason

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
BUF = Path(sys.executable).with_name("buf")
FILES = sorted((ROOT / "proto").rglob("*.proto"))


def _buf(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BUF, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_the_protos_follow_the_rules_of_buf_and_every_field_has_a_comment() -> None:
    done = _buf("lint", "proto")
    assert not done.stdout + done.stderr
    assert done.returncode == 0


def test_the_protos_break_no_released_client() -> None:
    done = _buf("breaking", "proto", "--against", "proto/released.binpb")
    assert not done.stdout + done.stderr
    assert done.returncode == 0


def test_a_field_that_changes_its_number_is_a_break(tmp_path: Path) -> None:
    for file in FILES:
        copy = tmp_path / file.relative_to(ROOT / "proto")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(file.read_text().replace("bytes payload = 2;", "bytes payload = 20;"))
    (tmp_path / "buf.yaml").write_text((ROOT / "proto" / "buf.yaml").read_text())
    done = _buf("breaking", str(tmp_path), "--against", "proto/released.binpb")
    assert done.returncode != 0
    assert 'field "2"' in done.stdout


def test_the_generated_code_is_current(tmp_path: Path) -> None:
    out = f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"
    names = [str(file.relative_to(ROOT)) for file in FILES]
    command = [str(BUF.with_name("protoc")), "-Iproto", *out, *names]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    generated = {file.name: file.read_bytes() for file in tmp_path.rglob("*_pb2*")}
    existing = {file.name: file.read_bytes() for file in (ROOT / "scheduler/tickwheel/v1").glob("*_pb2*")}
    assert generated == existing


def test_the_table_of_methods_has_every_rpc() -> None:
    assert len(METHODS) == sum(len(service.methods) for service in SERVICES)


def test_every_error_is_documented_in_the_comments_of_the_rpcs() -> None:
    comments = (ROOT / "proto/tickwheel/v1/message_service.proto").read_text()
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TickwheelError)]
    # Only an event process can be fenced, and a failed handshake ends before any call. The client itself checks the
    # arguments of a task, and concludes from a message that the call of a task has no result.
    of_clients = {errors.HandshakeFailed, errors.ArgumentsRefused, errors.NoResult, errors.ResultExpired}
    for kind in set(kinds) - {TickwheelError, errors.Fenced, *of_clients}:
        assert reason(kind) in comments, kind
