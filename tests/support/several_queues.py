"""A caller of the dequeue of several queues, for the blocking client and for the asyncio client."""

import random
from collections.abc import Sequence
from typing import Any

from tests.integration.blocking_aio import Blocking
from tests.support.tickets import Tickets
from tickwheel import Message, Tickwheel, aio
from tickwheel.operations.dequeue_options import DequeueOptions
from tickwheel.operations.several_queues.dequeue_several import SeveralQueues
from tickwheel.worker.selectors import QueueSelector, ReducedLottery

NAMES = ("red", "green", "blue")
# Longer than a call of a test needs, and short enough for a test that fails.
LONG_S = 15.0


class Caller:
    """A worker that takes batches of several queues."""

    def __init__(
        self,
        tw: Tickwheel,
        queues: Sequence[Tickets] = tuple(map(Tickets, NAMES)),
        limit: int = 1,
        selector: type[QueueSelector[Tickets]] = ReducedLottery,
    ) -> None:
        self._tw: Any = tw
        # A message belongs to the client that leased it.
        kind: Any = aio.Message if isinstance(tw, Blocking) else Message
        options = {queue.name: DequeueOptions.parse(limit, worker="me") for queue in queues}
        self.several: SeveralQueues[Tickets, Any] = SeveralQueues(
            options, selector(queues, random.Random(1)).select_queue, kind
        )

    def take(self, seconds: float = 0) -> tuple[str, list[str]]:
        """Return the chosen queue, and the ids of the batch."""
        batch = self._tw._dequeue_several(self.several, seconds)
        assert all(message.queue == batch.queue.name for message in batch.messages)
        return batch.queue.name, [message.id for message in batch.messages]
