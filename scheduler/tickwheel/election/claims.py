"""How the holder of a leadership claims its shard, once on each connection. Without I/O.

With a lock file or ZooKeeper, a fence is an epoch and the number of a connection, and the shard accepts a higher fence.
In an election by lease, a fence is an epoch and 53 random bits, new ones for each claim, and the claim replaces the one
that the process has seen. So no two claims of a shard have the same fence, even if the server has lost data and epochs
come again.
"""

from random import SystemRandom
from typing import Final, Protocol

from tickwheel.storage.fence import StoredClaim, pack_fence

# The numbers of connections start at a random multiple of 2**32, and stay below 2**53. If two processes get the same
# epoch by an operator's error (lock files on two hosts), their numbers differ, so the scripts reject the calls of one
# of the two processes.
_FIRST_NUMBERS: Final = 2**21
_NUMBER_BITS: Final = 53
_random = SystemRandom()


class Claims(Protocol):
    """The claims of one leadership."""

    fence: bytes

    @property
    def script(self) -> str:
        """The script that claims the shard."""

    @property
    def epoch(self) -> int | None:
        """The epoch of the next or last claim; None if it depends on the stored claim."""

    def next_fence(self, stored: StoredClaim) -> bytes | None:
        """Return the fence of the next claim, which is then `fence`. None: another process has claimed the shard."""

    def arguments(self) -> list[str | bytes]:
        """Return the further arguments of the script."""

    def confirm(self) -> None:
        """Record that the shard has accepted the claim."""


class EpochClaims:
    """Claims with the epoch of the election, or with the epoch after the stored one."""

    script = "claim_shard"

    def __init__(self, epoch: int | None, first_number: int | None = None, *, is_embedded: bool = False) -> None:
        """``first_number`` is the number of the first connection; only tests pass it.

        ``is_embedded``: the server is the embedded server of a data directory. The claim stores this in the shard, so
        that no election by lease takes the shard over.
        """
        self.epoch = epoch
        self.fence = b""
        self._is_embedded = is_embedded
        self._number = _random.randrange(_FIRST_NUMBERS) << 32 if first_number is None else first_number

    def next_fence(self, stored: StoredClaim) -> bytes | None:
        if self.epoch is None:
            self.epoch = stored.epoch + 1
        self.fence = pack_fence(self.epoch, self._number)
        self._number += 1
        return self.fence

    def arguments(self) -> list[str | bytes]:
        return ["1"] if self._is_embedded else []

    def confirm(self) -> None:
        """Do nothing."""


class LeaseClaims:
    """Claims over the claim that was seen."""

    script = "claim_shard_by_lease"

    def __init__(self, member: str, seen: StoredClaim) -> None:
        """``seen`` is the claim over which the election has decided to claim the shard."""
        self.epoch = 0
        self.fence = b""
        # The fence of the last claim that the shard has accepted; empty while the loop claims again.
        self.accepted = b""
        self.is_confirmed = False
        self._member = member
        self._seen = seen

    def next_fence(self, stored: StoredClaim) -> bytes | None:
        is_own = stored.holder == self._member
        # The shard's epoch is lower than that of an accepted claim only if a failover has lost the claim.
        is_lost = self.is_confirmed and stored.epoch < self.epoch
        is_first = not self.is_confirmed and stored.fence == self._seen.fence
        self.accepted = b""
        if not (is_own or is_lost or is_first):
            return None
        self._seen = stored
        self.epoch = max(stored.epoch, self.epoch) + 1
        self.fence = pack_fence(self.epoch, _random.getrandbits(_NUMBER_BITS))
        return self.fence

    def arguments(self) -> list[str | bytes]:
        return [self._member, self._seen.fence, self._seen.created]

    def confirm(self) -> None:
        self.is_confirmed = True
        self.accepted = self.fence
