"""Page tokens: the position in a walk through the messages of a queue, as text."""

import re

from tickwheel.errors import InvalidArgument
from tickwheel.model.validation import preview

START = b"0"
# A token of an earlier version has no process of the server (`lua/_scan_cursor.lua`) in its cursor.
_TOKEN = re.compile(r"([0-9]{1,5}):((?:[0-9a-f]{8}-)?([0-9]{1,20}))")


def format_page_token(shard: int, cursor: bytes) -> str:
    """Return the token of a position: a shard, and the cursor in the messages of the shard."""
    return f"{shard}:{cursor.decode()}"


def parse_page_token(token: str, shards: int) -> tuple[int, bytes]:
    """Return the shard and the cursor of a token; an empty token is the start. Raises InvalidArgument."""
    if not token:
        return 0, START
    match = _TOKEN.fullmatch(token)
    # Redis has cursors of 64 bits.
    if match is None or int(match[1]) >= shards or int(match[3]) >= 2**64:
        raise page_token_error(token)
    return int(match[1]), match[2].encode()


def page_token_error(token: str) -> InvalidArgument:
    """Return the error for a token of another form."""
    return InvalidArgument(f"page_token must be the token of the previous page, not {preview(token)}")
