"""One round on its way: what goes to which server, what is answered, what may have been done, what to do next. No I/O.

Both I/O layers carry it out the same way: send every parcel, read every answer, then `next` says how to go on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from redis.exceptions import AskError, MovedError

from tickwheel.plan import Command, Reply, Request
from tickwheel.redis.replies import (
    ASKING,
    ScriptMissing,
    TryLater,
    asking,
    commands,
    interpret,
    refusal,
    refuse,
    sources,
    was_run,
)
from tickwheel.redis.topology import Topology, named

# So often is a request passed on at once; servers that send it in a circle are changing, and are given time.
_HOPS = 4


@dataclass(slots=True)
class Parcel:
    """What is sent to one server together: scripts that it lacks, then the commands of each request by its number."""

    server: str
    loads: list[Command]
    requests: list[tuple[int, list[Command]]]

    def commands(self) -> list[Command]:
        return self.loads + [command for _, each in self.requests for command in each]


def had_effect(requests: Sequence[Request], replies: Sequence[Reply | None]) -> bool:
    """Whether any of the requests that change something was answered, and not by a refusal or with nothing."""
    answered = zip(requests, replies, strict=True)
    return any(reply and reply.value and reply.error is None and request.durable for request, reply in answered)


class Delivery:
    """The requests of a round until all are answered."""

    __slots__ = (
        "_asked",
        "_has_done",
        "_hops",
        "_lacking",
        "_partly",
        "_passed_on",
        "_refusal",
        "_replicas",
        "_requests",
        "_resent",
        "_scripts_first",
        "_sent",
        "_topology",
        "_trouble",
        "_troubles",
        "map_is_old",
        "replies",
        "silent",
    )

    def __init__(
        self,
        requests: Sequence[Request],
        topology: Topology,
        replicas: int,
        *,
        has_done: bool = False,
        partly: bool = False,
    ) -> None:
        """``has_done``: rounds of the same call before this one have had an effect. ``partly`` as a Round's."""
        self.replies: list[Reply | None] = [None] * len(requests)
        # Servers that gave no answer, and whether the map is to be read again: from another one.
        self.silent: set[str] = set()
        self.map_is_old = topology.is_cluster and topology.version == 0
        self._has_done = has_done
        self._partly = partly
        self._requests = requests
        self._topology = topology
        self._replicas = replicas
        # Of each request whether a copy was sent that may have been done; and whether one was before the last.
        self._sent = [False] * len(requests)
        self._resent = [False] * len(requests)
        self._asked: dict[int, str] = {}
        self._lacking: set[str] = set()
        self._scripts_first = False
        self._trouble: Exception | None = None
        self._refusal: Exception | None = None
        self._passed_on = False
        self._hops = 0
        self._troubles = 0

    @property
    def in_doubt(self) -> bool:
        """Whether any of the call may have been done: a request that has no answer, or one that has."""
        unanswered = (sent for sent, reply in zip(self._sent, self.replies, strict=True) if reply is None)
        return self._has_done or any(unanswered) or had_effect(self._requests, self.replies)

    def parcels(self) -> list[Parcel]:
        """All that is not answered, by server; first only what lacks a script, so that it waits for no other."""
        found: dict[str, Parcel] = {}
        asked, self._asked = self._asked, {}
        for n, request in enumerate(self._requests):
            if self.replies[n] is not None:
                continue
            server = asked.get(n, self._topology.server(request.shard))
            if self._scripts_first and server not in self._lacking:
                if n in asked:
                    self._asked[n] = asked[n]
                continue
            if server is None:
                self._later(TryLater(f"no server of the cluster has shard {request.shard} now", elsewhere=True))
                continue
            plain = commands(request, self._sent[n], self._replicas)
            parcel = found.setdefault(server, Parcel(server, [], []))
            parcel.requests.append((n, asking(request, plain) if n in asked else plain))
        for server in self._lacking & found.keys():
            waiting = [self._requests[n] for n, _ in found[server].requests]
            found[server].loads = [("SCRIPT", "LOAD", source) for source in sources(waiting, self._replicas)]
        self._lacking.clear()
        return list(found.values())

    def sending(self, parcel: Parcel) -> None:
        """From here on its requests may be done."""
        for n, _ in parcel.requests:
            self._resent[n], self._sent[n] = self._sent[n], True

    def loaded(self, answer: object) -> None:
        """The answer to one of a parcel's scripts. What is refused for now is tried later."""
        if not isinstance(answer, Exception):
            return
        try:
            refuse(answer)
        except TryLater as error:
            self._later(error)
        except Exception as error:
            self._refusal = self._refusal or error

    def answered(self, parcel: Parcel, n: int, sent: list[Command], answers: list[object]) -> None:
        """The answers to the commands of a request; errors are values here."""
        request = self._requests[n]
        if sent[0] is ASKING:
            answers = [answer for command, answer in zip(sent, answers, strict=True) if command is not ASKING]
        try:
            self.replies[n] = interpret(request, answers, self._resent[n], self._replicas)
            return
        except ScriptMissing:
            self._lacking.add(parcel.server)
            if sent[0] is ASKING:
                self._asked[n] = parcel.server
        except TryLater as error:
            self._later(error)
        except AskError as error:
            self._pass_on(n, error, parcel.server)
        except Exception as error:
            self._refusal = self._refusal or error
            return
        # That was refused before anything was done; what was sent before remains as it was.
        self._sent[n] = self._resent[n] or was_run(request, answers)

    def map_is_read(self) -> None:
        """From a server that was not silent."""
        self.map_is_old = False
        self.silent.clear()

    def lost(self, parcel: Parcel, error: Exception) -> None:
        """The connection was lost, or there was none to be had: what is not answered may have been done, if sent."""
        self._trouble = error
        self.silent.add(parcel.server)
        self.map_is_old = self._topology.is_cluster

    def next(self) -> Exception | None:
        """After an attempt: why to wait before the next one, None where it is sent at once. Raises what was refused."""
        if self._refusal is not None:
            raise self._refusal
        self._scripts_first = bool(self._lacking) and not self._scripts_first
        if self._scripts_first:
            # Others may be silent for as long as the call has. Why to wait for them is told afterwards.
            return None
        trouble, self._trouble = self._trouble, None
        self._hops = self._hops + 1 if self._passed_on else 0
        self._passed_on = False
        if trouble is None and self._hops > _HOPS:
            self.map_is_old = True
            trouble = TryLater("the cluster is moving its slots")
        self._troubles += trouble is not None
        return trouble

    @property
    def is_done(self) -> bool:
        """Whether all are answered, or, of a round that may stay in part, some; the map was read again by then."""
        return None not in self.replies or (self._partly and self._troubles > 1 and any(self.replies))

    def _later(self, error: TryLater) -> None:
        self._trouble = self._trouble or error
        self.map_is_old |= error.elsewhere and self._topology.is_cluster

    def _pass_on(self, n: int, error: AskError, told_by: str) -> None:
        if not self._topology.is_cluster:
            self._refusal = self._refusal or refusal(error)
            return
        server = named(error.host, error.port, told_by)
        self._passed_on = True
        if isinstance(error, MovedError):
            self._topology.moved(error.slot_id, server)
        else:
            self._asked[n] = server
