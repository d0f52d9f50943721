"""The .proto files generate Go code without further options."""

import re
from pathlib import Path

import pytest

from tickwheel.v1 import message_pb2, message_service_pb2, queue_service_pb2

pytestmark = pytest.mark.unit

FILES = sorted((Path(__file__).parents[2] / "proto").rglob("*.proto"))
PACKAGE = "github.com/tickwheel/tickwheel/gen/go/tickwheel/v1;tickwheelv1"


def test_every_proto_has_the_same_go_package() -> None:
    assert len(FILES) == 3
    assert [re.findall(r'^option go_package = "(.*)";$', file.read_text(), re.MULTILINE) for file in FILES] == [
        [PACKAGE]
    ] * len(FILES)


@pytest.mark.parametrize("module", [message_pb2, message_service_pb2, queue_service_pb2])
def test_the_generated_descriptors_have_the_go_package(module: object) -> None:
    assert module.DESCRIPTOR.GetOptions().go_package == PACKAGE  # type: ignore[attr-defined]
