"""Decodes texts from Redis. Every text that Tickwheel stores is UTF-8, but the data of a server can be damaged."""

from tickwheel.errors import DataLoss


def decode_text(label: str, stored: bytes) -> str:
    """Return a stored text. Raises DataLoss, which names the text by its ``label``, if it is not UTF-8."""
    try:
        return stored.decode()
    except UnicodeDecodeError as error:
        raise DataLoss(
            f"{label} is damaged, because it is not UTF-8: {stored!r:.80}; run `tickwheel doctor` to list all damage"
        ) from error
