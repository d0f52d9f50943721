"""Whether the workers and consumers of a deployment go on with their work."""

from collections.abc import Callable

from tests.upgrade.mixed_deployment import MixedDeployment


def has_progressed(deployment: MixedDeployment) -> Callable[[], bool]:
    """Return a function that returns whether each consumer and worker has written something since this call.

    Each of them writes a line for each message that it has finished.
    """
    finishing = [*deployment.consumers, *deployment.workers]
    before = [component.written_bytes for component in finishing]
    return lambda: all(c.written_bytes > count for c, count in zip(finishing, before, strict=True))
