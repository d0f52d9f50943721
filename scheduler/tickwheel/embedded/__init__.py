"""The embedded server: a bundled Valkey server for each data directory, shared by the programs that open it.

The first program starts the server and the last one stops it. File locks record which programs have a directory open,
so no service, port or configuration is needed, and a crash of a program or of the server leaves nothing to clean up.
The caller gets the URL of the server, and connects its own clients.

server.py          `EmbeddedServer`: the shared server of a directory, and its settings
valkey_process.py  the server process: its start, checks and end
socket_owner.py    recognizes the server by the path of its socket
connection.py      connections to the server, which check the user of the server
file_lock.py       file locks that end with their process
"""

from tickwheel.embedded.server import EmbeddedServer
from tickwheel.embedded.valkey_process import EmbeddedServerError

__all__ = ["EmbeddedServer", "EmbeddedServerError"]
