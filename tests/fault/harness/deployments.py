"""The places that rows name."""

from tests.fault.harness.clustered import ClusterDeployment
from tests.fault.harness.deployment import Deployment, SmallDisk
from tests.fault.harness.replicated import ReplicatedDeployment

DEPLOYMENTS: dict[str, type[Deployment]] = {
    "single": Deployment,
    "small disk": SmallDisk,
    "replicated": ReplicatedDeployment,
    "cluster": ClusterDeployment,
}
