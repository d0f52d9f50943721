"""The wheel of one shard as a generator: its timers in memory, its clock guard. No I/O but the connection."""
