"""The stored format: the names of keys, the bytes under each key, and the composition of the Lua scripts.

The scripts in `lua/` write the data. This package reads and builds the same bytes in Python, and a test compares both
layouts. The package does no I/O: `tickwheel.redis` sends the calls, and `tickwheel.operations` decides which calls to
send.

    keys.py           names of all Redis keys and channels
    end_topic.py      the topic and the announcements of messages that end
    key_types.py      the types of the keys, and the error for a key of another type
    record.py         a message as bytes, its name (exclusive value and id), and the Bloom filters of its metadata
    transition.py     the outbox: one event for each change of state
    timer.py          a timer of the wheel as bytes
    wheel_levels.py   levels and slots of the wheel, and the times of a slot
    sharding.py       the shard of a message
    scripts.py        the composition of scripts from fragments, and their binding to keys
    script_errors.py  the error codes of the scripts, their exceptions, and when a call can be retried
    fence.py          the fence of a shard, and the client name of a driver's connections
    stream_id.py      ids of stream entries
    stored_text.py    the decoding of stored texts
    trace_context.py  the metadata keys of W3C Trace Context
"""
