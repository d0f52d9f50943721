"""Values of the domain and their validation, without I/O.

The package checks every argument of a caller before anything is sent, and converts times to integer milliseconds. It
depends on the limits (`tickwheel.limits`) and the stored format (`tickwheel.storage`), not on the operations.

    message.py              new messages, leased messages, and snapshots of messages
    message_id.py           ids for messages that were enqueued without one
    queue_config.py         the configuration of a queue: settings, their limits, and their packed forms
    queue_config_update.py  the settings that a repeated create_queue may change, and the conflicts
    retry_backoff.py        the wait of a message after a failed attempt
    results.py              results of operations: Change, Explanation, Lateness, ForecastMinute
    state_machine.py        the states of a message and the table of transitions
    sink_url.py             URLs of sinks
    served_topics.py        the topics that a program permits as sinks
    security_releases.py    the releases of Redis and Valkey that mend vulnerabilities
    durations.py            durations as text: 15m, 2h30m
    priority.py             priorities, and the deadlines that they mean
    json_payload.py         payloads that are JSON
    message_content.py      checks of payloads, metadata and filters
    validation.py           checks of arguments, and conversions of times
"""
