"""Text for terminals, logs and answers: without control characters, and not too long."""


def escape_unprintable(text: str) -> str:
    """Escape control characters, so that the text stays on its line and cannot control the terminal.

    Escaped are all characters that `str.isprintable` names: C0 and C1 controls, line and paragraph separators,
    characters that change the direction of writing, and lone surrogates.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def indent_lines(text: str) -> str:
    """Escape the text, but keep its line breaks, and indent each line after a break."""
    return "\n  ".join(escape_unprintable(line) for line in text.split("\n"))


def cut_middle(text: str, maximum: int) -> str:
    """Return the text. If its UTF-8 has more than ``maximum`` bytes, return the first and the last half of ``maximum``
    bytes, with a note of the cut between them.
    """
    # A character has at most 4 bytes.
    if len(text) <= maximum // 4:
        return text
    raw = text.encode(errors="backslashreplace")
    if len(raw) <= maximum:
        return text
    half = maximum // 2
    start, end = (part.decode(errors="ignore") for part in (raw[:half], raw[-half:]))
    return f"{start} [... {len(raw) - 2 * half:,} bytes are cut here ...] {end}"
