"""The shard of a message: CRC-32C of queue and routing key, modulo the number of shards.

In an exclusive queue, the routing key is the exclusive value, so that all messages of a value are on one shard. In
other queues, the routing key is the id. Other languages have CRC-32C (Castagnoli, RFC 3720), too. Test vector:
`crc32c(b"orders\\0order-17") = 0x2a3c2795`.
"""

import google_crc32c


def shard_of(queue: str, key: bytes, shards: int) -> int:
    """Return the shard of a message of ``queue`` whose routing key is ``key``."""
    if shards == 1:
        return 0
    checksum: int = google_crc32c.value(queue.encode() + b"\0" + key)
    return checksum % shards
