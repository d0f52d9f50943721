"""Reads text files that users write. Errors name the file."""

from importlib.resources.abc import Traversable

from tickwheel.errors import InvalidArgument


def read_text(file: Traversable, encoding: str = "utf-8") -> str:
    """Return the text of the file. Raise InvalidArgument if the file cannot be read or is not UTF-8."""
    try:
        return file.read_bytes().decode(encoding)
    except OSError as error:
        raise InvalidArgument(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{file.name} is not UTF-8 text: {error.reason} at byte {error.start}") from error
