"""Text without control characters, for terminals and logs."""


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
