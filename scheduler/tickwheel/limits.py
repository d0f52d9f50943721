"""Every limit and default, in one place. The guide's table is checked against this file by a test."""

PAYLOAD_BYTES = 32 * 1024
PAYLOAD_BYTES_MAX = 256 * 1024
# Payloads up to this size live in the record, larger ones in `bodies`: chosen, not measured.
INLINE_BYTES = 1024

PAIRS_MAX = 16
PAIR_KEY_BYTES = 64
PAIR_VALUE_BYTES = 256
ID_BYTES = 128
NAME_CHARS = 64
WORKER_BYTES = 64
ERROR_BYTES = 1024
RESULT_BYTES = 1024

DEQUEUE_MESSAGES = 1_000
# Of one DequeueBatch, for so many messages as one of them may ask for.
DEQUEUE_REQUESTS = 100
# Of one script call: some two milliseconds of the server's time, and other clients wait no longer.
CALL_MESSAGES = 250
# Of an exclusive queue, to complete, release or cancel: a value that is let go makes its next message ready, with all
# its pairs.
CALL_EXCLUSIVE = 20
# Of a plain queue, to cancel or release: each leaves or enters up to 16 indexes.
CALL_INDEXED = 50
CALL_BYTES = 1024 * 1024
# Of large payloads, which go beside a script's call and not through it.
OUT_OF_BAND_BYTES = 4 * 1024 * 1024
BESIDE_BYTES = OUT_OF_BAND_BYTES  # its public name until now
CALL_ENTRIES = 2_000
# Of all calls that are sent together, one for each shard: what a client holds until they are answered.
ROUND_BYTES = 16 * 1024 * 1024

# A configuration that changes this often before one call gets through is being fought over.
STALE_CONFIG_RETRIES = 20
STALE_MOST = STALE_CONFIG_RETRIES  # its public name until now

QUEUES_MAX = 65_535
SETTINGS_MAX = 1_000
SETTING_NAME_CHARS = 128
SETTING_BYTES = 1024
SHARDS_MAX = 16_384

DELAY_MS_MAX = 5 * 365 * 86_400_000
DEADLINE_MS_MAX = 2**52 - 1
WAIT_MS_MAX = 3_600_000
LEASE_MS = 30_000
LEASE_MS_MIN = 1_000
LEASE_MS_MAX = 12 * 3_600_000
MAX_ATTEMPTS = 5
MAX_ATTEMPTS_MAX = 1_000
BACKOFF_MS = 1_000
BACKOFF_MS_MAX = 600_000
RETENTION_MS = 600_000
ERRORED_RETENTION_MS = 7 * 86_400_000
RETENTION_MS_MAX = 365 * 86_400_000
# A call is repeated for at most RETRY_MS; its session outlives that many times over.
SESSION_MS = 300_000
RETRY_MS = 30_000
HISTORY_ENTRIES = 100_000
# Bytes of events of a shard that may wait for the relay.
OUTBOX_BYTES = 256 * 1024 * 1024
OUTBOX_BYTES_MIN = 1024
OUTBOX_BYTES_MAX = 2**40 - 1024
FORECAST_MINUTES_MAX = 1_440
CLOCK_GUARD_MS = 1_000
CLOCK_GUARD_MS_MIN = 250
CLOCK_GUARD_MS_MAX = 3_600_000

# Of one process of the service. A request is a message of gRPC; dequeues with a wait, and streams, are calls that wait.
REQUEST_BYTES = 4 * 1024 * 1024
STREAM_CREDIT = 10_000
WAITING_CALLS = 10_000
# Beyond those that wait.
OTHER_CALLS = 2_000
CONNECTIONS = 10_000
RATE_MAX = 1_000_000
