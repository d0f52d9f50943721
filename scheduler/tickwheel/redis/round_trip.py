"""The state machine of one round trip, without I/O.

`RoundTrip` groups requests by server, matches answers to requests, tracks which requests may have been executed, and
decides what to send next. Both executors drive it the same way: send every batch of `next_batches`, read every answer,
then call `finish_attempt`, until `is_done`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import hiredis
from redis.exceptions import AskError

from tickwheel.errors import DataLoss
from tickwheel.plan import BROKEN_ANSWER, Command, Reply, Request, broken_answer_error
from tickwheel.redis.replies import (
    ASKING,
    ScriptMissing,
    TemporaryError,
    WrongType,
    commands,
    interpret,
    keys_of,
    prefix_asking,
    raise_for_reply,
    script_sources,
    to_tickwheel_error,
    was_run,
)
from tickwheel.redis.topology import MAX_REDIRECTS, Topology
from tickwheel.storage.key_types import type_probes, wrong_type_text

# Bytes of commands that are sent at once, unless one command has more.
_CHUNK_BYTES: Final = 6_000


def _not_kept() -> TemporaryError:
    return TemporaryError("the server lacks a script that was just loaded")


@dataclass(slots=True)
class ServerBatch:
    """The commands for one server: first the loads of missing scripts, then the requests, each with its index."""

    server: str
    loads: list[Command]
    requests: list[tuple[int, list[Command]]]

    def commands(self) -> list[Command]:
        return self.loads + [command for _, request_commands in self.requests for command in request_commands]

    def pack(self) -> list[bytes]:
        """Return the commands as chunks of bytes, each of which is sent at once.

        The method of redis-py's asyncio connections is written in Python, and takes seven times as long.
        """
        chunks: list[bytes] = []
        pieces: list[bytes] = []
        size = 0
        for command in self.commands():
            piece = hiredis.pack_command(command)  # type: ignore[arg-type]
            pieces.append(piece)
            size += len(piece)
            if size > _CHUNK_BYTES:
                chunks.append(b"".join(pieces))
                pieces, size = [], 0
        return [*chunks, b"".join(pieces)] if pieces else chunks


# The plain commands of plans that change data.
_WRITES: Final = frozenset({"HSET", "HSETNX", "UNLINK", "XTRIM"})


def had_effect(requests: Sequence[Request], replies: Sequence[Reply | None]) -> bool:
    """Return whether a request changed data: it can do so, and its reply is no error and not empty.

    A call of a script can do so if it is ``durable`` (`Request`).
    """
    for request, reply in zip(requests, replies, strict=True):
        writes = request.durable or (request.command is not None and request.command[0] in _WRITES)
        if writes and reply and reply.value and reply.error is None:
            return True
    return False


class RoundTrip:
    """The requests of a round, until all of them are answered."""

    __slots__ = (
        "_allow_partial",
        "_already_applied",
        "_failed_attempts",
        "_hops",
        "_loaded_servers",
        "_missing_scripts",
        "_permanent_error",
        "_problem",
        "_redirects",
        "_replicas",
        "_requests",
        "_resent",
        "_scripts_first",
        "_sent",
        "_topology",
        "_was_redirected",
        "_wrong_types",
        "replies",
        "slots_stale",
        "unresponsive",
    )

    def __init__(
        self,
        requests: Sequence[Request],
        topology: Topology,
        replicas: int,
        *,
        already_applied: bool = False,
        allow_partial: bool = False,
        resent: bool = False,
    ) -> None:
        """``already_applied``: an earlier round of the same call has changed data. ``allow_partial``: see `Round`.

        ``resent``: another round may have executed these requests, so they are sent as retries.
        """
        self.replies: list[Reply | None] = [None] * len(requests)
        # Servers that did not answer. The executor reads the hash slots of the cluster from another server if possible.
        self.unresponsive: set[str] = set()
        # Whether the executor must read the hash slots again.
        self.slots_stale = topology.is_cluster and topology.version == 0
        self._already_applied = already_applied
        self._allow_partial = allow_partial
        self._requests = requests
        self._topology = topology
        self._replicas = replicas
        # For each request: whether any sent copy may have been executed, and whether a copy before the latest one may
        # have been executed.
        self._sent = [resent] * len(requests)
        self._resent = [False] * len(requests)
        self._redirects: dict[int, str] = {}
        self._missing_scripts: set[str] = set()
        # The servers to which this round has sent the missing scripts.
        self._loaded_servers: set[str] = set()
        self._scripts_first = False
        # Requests that the server refused because of the type of a key.
        self._wrong_types: set[int] = set()
        self._problem: Exception | None = None
        self._permanent_error: Exception | None = None
        self._was_redirected = False
        self._hops = 0
        self._failed_attempts = 0

    @property
    def in_doubt(self) -> bool:
        """Whether the call may have changed data: a sent request is unanswered, or an answered one had an effect."""
        unanswered = (sent for sent, reply in zip(self._sent, self.replies, strict=True) if reply is None)
        return self._already_applied or any(unanswered) or had_effect(self._requests, self.replies)

    def next_batches(self) -> list[ServerBatch]:
        """Return the unanswered requests, by server.

        If scripts are missing, the next attempt includes only the servers that lack them, so that loading the scripts
        does not wait for unresponsive servers.
        """
        batches: dict[str, ServerBatch] = {}
        redirects, self._redirects = self._redirects, {}
        for n, request in enumerate(self._requests):
            if self.replies[n] is not None:
                continue
            server = redirects.get(n, self._topology.server(request.shard))
            if self._scripts_first and server not in self._missing_scripts:
                if n in redirects:
                    self._redirects[n] = redirects[n]
                continue
            if server is None:
                self._postpone(
                    TemporaryError(f"no server of the cluster has shard {request.shard} now", on_other_server=True)
                )
                continue
            if n in self._wrong_types:
                plain: list[Command] = [*type_probes(keys_of(request))]
            else:
                plain = commands(request, self._sent[n], self._replicas)
            batch = batches.get(server)
            if batch is None:
                batch = batches[server] = ServerBatch(server, [], [])
            batch.requests.append((n, prefix_asking(request, plain) if n in redirects else plain))
        for server in self._missing_scripts & batches.keys():
            waiting = [self._requests[n] for n, _ in batches[server].requests]
            self._loaded_servers.add(server)
            batches[server].loads = [("SCRIPT", "LOAD", source) for source in script_sources(waiting, self._replicas)]
        self._missing_scripts.clear()
        return list(batches.values())

    def mark_sent(self, batch: ServerBatch) -> None:
        """Record that the requests of the batch may be executed from now on."""
        for n, _ in batch.requests:
            self._resent[n], self._sent[n] = self._sent[n], True

    def on_script_loaded(self, answer: object) -> None:
        """Process the answer to the load of a script."""
        if not isinstance(answer, Exception):
            return
        try:
            raise_for_reply(answer)
        except TemporaryError as error:
            self._postpone(error)
        except ScriptMissing:
            self._postpone(_not_kept())
        except AskError as error:
            self._permanent_error = self._permanent_error or to_tickwheel_error(error)
        except Exception as error:
            self._permanent_error = self._permanent_error or error

    def on_answers(self, batch: ServerBatch, n: int, sent: list[Command], answers: list[object]) -> None:
        """Process the answers to the commands of a request. Error answers are exception objects in ``answers``."""
        request = self._requests[n]
        if n in self._wrong_types:
            self._permanent_error = self._permanent_error or DataLoss(wrong_type_text(keys_of(request), answers))
            return
        if sent[0] is ASKING:
            answers = [answer for command, answer in zip(sent, answers, strict=True) if command is not ASKING]
        try:
            self.replies[n] = interpret(request, answers, self._resent[n], self._replicas)
            return
        except WrongType:
            # The next attempt asks for the types of the keys. A script may have executed its first commands.
            self._wrong_types.add(n)
            if not keys_of(request):
                self._permanent_error = self._permanent_error or DataLoss(wrong_type_text([], []))
            return
        except ScriptMissing:
            self._missing_scripts.add(batch.server)
            if batch.server in self._loaded_servers:
                # The scripts were flushed in the meantime, or the server does not keep them: pause, and count the time.
                self._postpone(_not_kept())
            if sent[0] is ASKING:
                self._redirects[n] = batch.server
        except TemporaryError as error:
            self._postpone(error)
        except AskError as error:
            try:
                self._follow_redirect(n, error, batch.server)
            except BROKEN_ANSWER as broken:
                self._on_broken_answer(batch, broken)
        except BROKEN_ANSWER as broken:
            self._on_broken_answer(batch, broken)
            return
        except Exception as error:
            self._permanent_error = self._permanent_error or error
            return
        # The server has not executed a request that it refused, except if only the wait for replicas failed. But if
        # the request was sent before, that earlier copy may have been executed.
        self._sent[n] = self._resent[n] or was_run(request, answers)

    def _on_broken_answer(self, batch: ServerBatch, error: Exception) -> None:
        server = batch.server or "the server"
        self._permanent_error = self._permanent_error or broken_answer_error(server, error)

    def mark_slots_fresh(self) -> None:
        """Record that the executor has read the slots again."""
        self.slots_stale = False
        self.unresponsive.clear()

    def on_connection_lost(self, batch: ServerBatch, error: Exception) -> None:
        """Process a lost or refused connection. Requests that were sent and not answered may have been executed."""
        self._problem = error
        self.unresponsive.add(batch.server)
        self.slots_stale = self._topology.is_cluster

    def finish_attempt(self) -> Exception | None:
        """End an attempt. Return the problem that requires a pause before the next attempt, or None.

        Raises the permanent error of a request.
        """
        if self._permanent_error is not None:
            raise self._permanent_error
        self._scripts_first = bool(self._missing_scripts) and not self._scripts_first
        if self._scripts_first:
            # Load the scripts first: other servers may not answer before the timeout. A later attempt returns the
            # problem with those servers.
            return None
        problem, self._problem = self._problem, None
        self._hops = self._hops + 1 if self._was_redirected else 0
        self._was_redirected = False
        if problem is None and self._hops > MAX_REDIRECTS:
            self.slots_stale = True
            problem = TemporaryError("the cluster is moving its slots")
        self._failed_attempts += problem is not None
        return problem

    @property
    def is_done(self) -> bool:
        """Whether the round is over: all requests are answered.

        With ``allow_partial``, one answered request is enough after two failed attempts. Between these attempts the
        executor has read the slots again.
        """
        return None not in self.replies or (self._allow_partial and self._failed_attempts > 1 and any(self.replies))

    def _postpone(self, error: TemporaryError) -> None:
        self._problem = self._problem or error
        self.slots_stale |= error.on_other_server and self._topology.is_cluster

    def _follow_redirect(self, n: int, error: AskError, reported_by: str) -> None:
        if not self._topology.is_cluster:
            self._permanent_error = self._permanent_error or to_tickwheel_error(error)
            return
        self._was_redirected = True
        server = self._topology.follow_redirect(error, reported_by)
        if server is not None:
            self._redirects[n] = server
