"""Errors that the scripts in `lua/` raise."""


class ScriptError(Exception):
    """The server answered a script with an error. ``code`` is its first word."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.partition(" ")[0]
