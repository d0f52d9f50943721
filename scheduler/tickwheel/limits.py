"""Every limit and default, in one place. A test compares the table in the guide with this file."""

PAYLOAD_BYTES = 32 * 1024
PAYLOAD_BYTES_MAX = 256 * 1024
# Payloads up to this size are stored in the record, larger payloads in a separate hash. The value is not the result of
# a measurement.
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
# Requests of one DequeueBatch call. The sum of their limits is at most DEQUEUE_MESSAGES.
DEQUEUE_REQUESTS = 100
# Queues of one AwaitMessages call.
AWAITED_QUEUES = 100
# Messages, leases or ids of one request to the service, and leases of one Fail request.
BATCH_ITEMS = 1_000
FAIL_ITEMS = 100
# Messages of one script call. The call takes about 2 ms of the server's time; other clients wait no longer than that.
CALL_MESSAGES = 250
# Messages of one call that completes, releases or cancels messages of an exclusive queue. For each message, the call
# may also make the next message of the exclusive value ready, and add the index entries of this next message.
CALL_EXCLUSIVE = 20
# Messages of one call that cancels or releases messages of a queue that is not exclusive. For each message, the call
# removes or adds an index entry for each of up to 16 metadata pairs.
CALL_INDEXED = 50
CALL_BYTES = 1024 * 1024
# Bytes of the large payloads of one call, which are sent outside the arguments of the script.
OUT_OF_BAND_BYTES = 4 * 1024 * 1024
BESIDE_BYTES = OUT_OF_BAND_BYTES  # earlier public name
# Index entries that one call may read or write. A written entry counts as several read entries.
CALL_ENTRIES = 2_000
# Total bytes of one round, which has one call for each shard. A client keeps the calls in memory until it has the
# answers.
ROUND_BYTES = 16 * 1024 * 1024

# A call starts again if the configuration of its queue changes during the call, and fails after this number of changes.
STALE_CONFIG_RETRIES = 20
STALE_MOST = STALE_CONFIG_RETRIES  # earlier public name

QUEUES_MAX = 65_535
# Queues that auto-create makes for one token of the service, unless the token file sets another limit.
AUTO_CREATED_QUEUES = 100
SETTINGS_MAX = 1_000
SETTING_NAME_CHARS = 128
SETTING_BYTES = 1024
SHARDS_MAX = 16_384

DELAY_MS_MAX = 5 * 365 * 86_400_000
DEADLINE_MS_MAX = 2**52 - 1
PRIORITY_MAX = 9
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
# A call is retried for at most RETRY_MS. Its session lives ten times as long.
SESSION_MS = 300_000
RETRY_MS = 30_000
# The default for the calls of producers with the asyncio client, and for the client of a TaskApp outside workers: the
# caller of a web request should not wait longer.
PRODUCER_RETRY_MS = 5_000
HISTORY_ENTRIES = 100_000
# Bytes of events that a shard keeps for the relay.
OUTBOX_BYTES = 256 * 1024 * 1024
OUTBOX_BYTES_MIN = 1024
OUTBOX_BYTES_MAX = 2**40 - 1024
FORECAST_MINUTES_MAX = 1_440
CLOCK_GUARD_MS = 1_000
CLOCK_GUARD_MS_MIN = 250
CLOCK_GUARD_MS_MAX = 3_600_000

# Limits of one process of the service. A request is one gRPC message. A waiting call is a dequeue with a wait, or a
# stream.
REQUEST_BYTES = 4 * 1024 * 1024
# A large request has more bytes than this. The fields of a smaller one take a few MB at most, so most are not
# counted before the request is parsed: see `tickwheel.rpc.request_form`.
UNCOUNTED_REQUEST_BYTES = 64 * 1024
# Bytes of all large requests in flight. The memory that the requests take in total is a multiple.
REQUESTS_BYTES = 64 * 1024 * 1024
# Large requests that are processed at a time for one caller. The others wait, so that the event loop serves
# other calls between the parts of the work.
LARGE_REQUESTS = 4
# The request of a call must arrive within this time after the headers of the call.
REQUEST_ARRIVAL_S = 10.0
# The request of a health check must arrive within this time. It is one packet, and its sender needs no token.
HEALTH_ARRIVAL_S = 2.0
# Requests that a process of the service reads at a time, and if it reads as many, further ones of each caller.
READS = 32
CALLER_READS = 8
# Answers that their clients have not read. An answer is large if it has more than this number of bytes.
UNCOUNTED_ANSWER_BYTES = 4 * 1024
# Bytes of all large answers that their clients have not read. Each byte takes two bytes of memory.
ANSWERS_BYTES = 64 * 1024 * 1024
# Bytes of the answers that a process builds at a time. A caller may have at most as many of them as it leaves free for
# others. Further answers take turns, a few for each caller.
ANSWERS_AT_ONCE = 32 * 1024 * 1024
# An answer whose size has no limit counts as many bytes as a caller may have if no other builds answers.
UNLIMITED_ANSWER_BYTES = ANSWERS_AT_ONCE // 2
CALLER_ANSWERS = 2
# If a shard does not answer, the turns of such answers end early, so that the caller can read other shards. Answers of
# at most as many bytes go on without a turn, for each caller and line (`ANSWER_LINES`). All of them arrive when the
# shard answers again.
CALLER_HANGING_BYTES = 8 * 1024 * 1024
# What a process reads at a time for each caller; the caller's other reads wait. The first is the number of requests to
# shards in large rounds, of more than four requests. The second is the number of groups of requests of `DequeueBatch`.
CALLER_ROUND_REQUESTS = 128
CALLER_DEQUEUE_GROUPS = 8
# A group counts as one for this number of shards, which it reads.
SHARDS_OF_A_GROUP = 32
# The items, for example messages or leases, of the requests that a process processes at a time for each caller.
# Requests with few items are not counted.
CALLER_ITEMS = 500
UNCOUNTED_ITEMS = 16
# A call of `AwaitMessages` with more queues than `UNCOUNTED_ITEMS` takes the event loop for up to 3 ms at a time. Such
# calls take turns (`CALLER_ANSWERS`), with a pause of this number of seconds after each. While the event loop is busy,
# further pauses follow, up to this number in all. So 2,000 of them at once delay the calls of others by 0.4 to 1.4 s.
PAUSE_AFTER_CHECK_S = 0.004
PAUSES_AFTER_CHECK = 4
# If a shard does not answer, such calls go on without a turn (`CALLER_HANGING_BYTES`): 96 of them, each of which counts
# as 256 KiB.
HANGING_CHECKS_BYTES = 24 * 1024 * 1024
# The longest turn of a read or of a request, in seconds. One that takes longer waits for a shard. The next ones of the
# caller then begin.
TURN_S = 0.1
# Walks of an index that go on at a time for each caller, after the first script call of each.
CALLER_WALKS = 1
# The longest time, in seconds, for which a walk waits until the rate of its token allows its second script call. Calls
# that wait, and the stop of the service, wait for it, too.
WALK_WAIT_S = 2.0
# An answer of the service with leased messages ends after this number of bytes, and a page of a list of messages after
# `PAGE_BYTES`. Each has at least one message. By default, gRPC clients reject answers above 4 MiB.
ANSWER_BYTES = 3 * 1024 * 1024
PAGE_BYTES = 1024 * 1024
# Answers take turns in three lines: those of at most the first number of bytes, those of at most the second number, and
# larger ones. So if a shard does not answer, small answers need not wait for large ones.
ANSWER_LINES = 512 * 1024, ANSWER_BYTES
# Open streams of a token without the limit `waiting`. Each can take a whole request, even one that never arrives whole.
STREAMS = 40
STREAM_CREDIT = 10_000
WAITING_CALLS = 10_000
# Wake channels of a caller in a process of the service: one for each queue for which its calls wait, and each shard.
# Each takes 436 bytes of memory. The calls that wait for further queues check them about once a second.
CALLER_CHANNELS = 200_000
# Other concurrent calls, in addition to the waiting calls.
OTHER_CALLS = 2_000
# Concurrent calls of the health service: calls that watch, and other calls. Concurrent calls of reflection.
HEALTH_WATCHES = 1_000
HEALTH_CHECKS = 1_000
REFLECTIONS = 40
# Other calls, health checks and watches that each caller may have in any case, whatever others have.
CALLER_CALLS = 4
CONNECTIONS = 10_000
# Calls that have arrived and that the service has not accepted yet. The service accepts the calls of all connections in
# one order, 2,000 to 5,000 a second, also calls that their clients have ended. So a flood of one client delays the
# calls of others. If this number of calls waits, gRPC cancels each further call, of whatever client, and the clients of
# Tickwheel repeat their calls. Under a flood of calls with a deadline of 5 ms, the median of the calls of others was
# 1.0 s with 2,000, and 0.2 s with 500. But with 500, when a thousand workers connect at once, for example after a
# restart of the service, calls of gRPC clients that do not repeat them fail.
UNACCEPTED_CALLS = 2_000
# Shards of a namespace that a client of the service creates. Many calls read all shards of a namespace, and each takes
# the event loop of a process about 0.02 ms for a shard. With 16,384 shards, one call delayed all others by 0.3 s.
CREATED_SHARDS = 256
# A call that reads all shards of a namespace costs one message for this number of shards, and at least one.
SHARDS_OF_A_MESSAGE = 8
# A call of AwaitMessages may read a key of each of its queues on each shard. It costs one message for this number of
# keys, if this is more. The keys of one message then take the service about as long as an enqueue does.
KEYS_OF_A_MESSAGE = 32
# A forecast reads a number for each of its minutes on each shard. It costs one message for this number of minutes, if
# this is more. The shards are read in rounds of at most `FORECAST_ROUND` minutes, because Redis serves no other client
# during a round, and takes about 1 µs for a minute.
MINUTES_OF_A_MESSAGE = 64
FORECAST_ROUND = 16_384
# After the call, a list of queues costs one message more for this number of queues that the caller may see, and one for
# this number of rows of the namespace that are read. A page of messages or a dequeue costs one more for this number of
# messages.
QUEUES_OF_A_MESSAGE = 4
ROWS_OF_A_MESSAGE = 32
READ_OF_A_MESSAGE = 16
RATE_MAX = 1_000_000
