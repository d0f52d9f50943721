"""The places that rows name."""

from tests.fault.harness.clustered import Clustered
from tests.fault.harness.deployment import Place, SmallDisk
from tests.fault.harness.replicated import Replicated

PLACES: dict[str, type[Place]] = {
    "single": Place,
    "small disk": SmallDisk,
    "replicated": Replicated,
    "cluster": Clustered,
}
