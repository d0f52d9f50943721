"""`tickwheel load`: production load simulated, what the server makes of it, and how many workers it needs."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tickwheel import InvalidArgument, Tickwheel, aio, urls
from tickwheel.cli.command import command
from tickwheel.cli.failures import ExitCode
from tickwheel.cli.notation import duration, option
from tickwheel.cli.output import note, print_json
from tickwheel.cli.place import Place
from tickwheel.operations.delete_namespace import delete_namespace

if TYPE_CHECKING:
    from tickwheel.load.outcome import Outcome
    from tickwheel.load.run import Settings
    from tickwheel.load.source import Source

commands = typer.Typer()
