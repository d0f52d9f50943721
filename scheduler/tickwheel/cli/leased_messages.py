"""Settles and extends leased messages, for `tickwheel complete`, `fail`, `release` and `extend`."""

from collections.abc import Callable, Iterator

from tickwheel import InvalidArgument, LeaseLost, Message, Queue
from tickwheel.cli.exit_codes import CommandError
from tickwheel.cli.message_output import print_state
from tickwheel.cli.parameter_types import token as parse_token
from tickwheel.cli.standard_streams import standard_input
from tickwheel.cli.target import Target
from tickwheel.runtime.foreign_data import decode_json


def settle(
    target: Target,
    name: str,
    lease_args: tuple[str, str | None, str | None],
    outcome: str,
    call: Callable[[Queue, list[Message]], None],
) -> None:
    """Apply ``call`` to the messages, and print their states. Raises CommandError at the end if leases were lost."""
    with target.open() as tickwheel:
        queue = tickwheel.queue(name)
        messages, lost = _resume_leases(queue, *lease_args)
        try:
            call(queue, messages)
        except LeaseLost as error:
            lost += [str(error)]
            messages = [message for message in messages if message not in error.lost]
    for message in messages:
        print_state(target, message.id, "pending" if outcome == "released" else outcome)
    if lost:
        raise CommandError(lost[0] + (f"; other messages that were {outcome}: {len(messages)}" if messages else ""))


def resume_lease(queue: Queue, id: str, token: str | None, exclusive_value: str | None) -> Message:
    if token is None:
        raise InvalidArgument("--token is missing: use the token that dequeue printed with the message")
    return queue.leased(id, parse_token(token), exclusive_value)


def _resume_leases(
    queue: Queue, id: str, token: str | None, exclusive_value: str | None
) -> tuple[list[Message], list[str]]:
    """Return the messages, and an error text for each message whose lease is lost."""
    if id != "-":
        return [resume_lease(queue, id, token, exclusive_value)], []
    if token is not None or exclusive_value is not None:
        raise InvalidArgument(
            "if ID is '-', tokens and exclusive values come from standard input: omit --token and --exclusive-value"
        )
    messages: list[Message] = []
    lost: list[str] = []
    for lease_args in _read_leases():
        try:
            messages.append(resume_lease(queue, *lease_args))
        except LeaseLost as error:
            lost.append(str(error))
    return messages, lost


def _read_leases() -> Iterator[tuple[str, str, str | None]]:
    """Yield id, token and exclusive value of each line that `dequeue --json` printed. Raises CommandError."""
    for number, line in enumerate(standard_input(), 1):
        if not line.strip():
            continue
        try:
            fields = decode_json(line)
            yield fields["id"], fields["token"], fields.get("exclusive_value")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CommandError(
                f"line {number} of standard input is not valid. Each line must be a JSON object as printed by dequeue"
                " --json, with id and token (and exclusive_value for an exclusive queue). No message was changed:"
                " correct the line and send all lines again"
            ) from error
