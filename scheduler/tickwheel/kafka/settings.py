"""The settings of Kafka's client library: from the options --kafka-setting, and from the file of --kafka-config."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tickwheel.errors import InvalidArgument
from tickwheel.runtime.secret_file import read_secret_file

_SECRETS: Final = {
    "sasl.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.assertion.private.key.pem",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.config",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.password",
}


def read_kafka_settings(options: Sequence[str], file: Path | None) -> dict[str, str]:
    """Return the settings of the file and of the options. An option replaces a setting of the file.

    Each option is written NAME=VALUE. So is each line of the file, except empty lines and lines that begin with ``#``.
    Raises InvalidArgument if a setting is not written like this, or if the file is unreadable, is not UTF-8 text, or is
    accessible to every user of the host.
    """
    settings = {} if file is None else _parse_file(file)
    for text in options:
        name, value = _parse(text, "--kafka-setting")
        settings[name] = value
    return settings


def warn_about_secrets(options: Sequence[str], log: logging.Logger) -> None:
    """Log a warning for each secret among the options, because every user of the host can read them.

    The program that a user has started calls this once. Its child processes get the same options, and do not.
    """
    for name in sorted({text.partition("=")[0].strip() for text in options} & _SECRETS):
        log.warning(
            "every user of this host can read the value of --kafka-setting %s: write it into a file, and name the file"
            " with --kafka-config",
            name,
        )


def _parse_file(file: Path) -> dict[str, str]:
    try:
        lines = read_secret_file("--kafka-config", file).decode().splitlines()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"--kafka-config {file} is not UTF-8 text: {error.reason}") from error
    lines = [line.strip() for line in lines]
    parsed = (
        _parse(line, f"line {number} of {file}")
        for number, line in enumerate(lines, 1)
        if line and not line.startswith("#")
    )
    return {name: value.lstrip() for name, value in parsed}


def _parse(text: str, where: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        # The setting is not quoted, because the value can be a password.
        raise InvalidArgument(
            f"{where}: a setting of Kafka's client is written NAME=VALUE, for example client.id=events"
        )
    return name.strip(), value
