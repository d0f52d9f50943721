"""Which shard a message lives on: CRC-32C of queue and key, modulo the number of shards.

The key is the exclusive value in an exclusive queue, so that a value is on one shard, and the id otherwise. Other
languages have CRC-32C (Castagnoli, RFC 3720) too: `crc32c(b"orders\\0order-17") = 0x2a3c2795` is the test vector.
"""

import google_crc32c


def shard_of(queue: str, key: bytes, shards: int) -> int:
    """The shard of a message of ``queue`` whose routing key is ``key``."""
    if shards == 1:
        return 0
    checksum: int = google_crc32c.value(queue.encode() + b"\0" + key)
    return checksum % shards
