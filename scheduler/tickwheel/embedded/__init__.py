"""The bundled Valkey as a child process: one server for a data directory, shared by the programs that open it."""

from tickwheel.embedded.server import EmbeddedServer
from tickwheel.embedded.valkey_process import EmbeddedServerError

__all__ = ["EmbeddedServer", "EmbeddedServerError"]
