"""Which process of a test run gets which test files. The tests of one file run in one process.

Most of the slow files use the processor. A few wait most of their time, for a lease that ends, or for a server that
does not answer. If there are four processes, the first one runs only these files, so the others need not wait, and the
processor has little more load than with three processes. With the load of four, tests of programs that must react in
time can fail.
"""

from typing import Any, Final

from xdist.scheduler import LoadFileScheduling

from tests.support.file_order import WAITING_FILES

PROCESSES: Final = 4
FOLDER: Final = "tests/"


class FileScheduling(LoadFileScheduling):  # type: ignore[misc]
    """Assigns files in the order of the collection, and the files that wait to the first process if there are four."""

    def _assign_work_unit(self, node: Any) -> None:
        waits = self.numnodes == PROCESSES and node.gateway.id == "gw0"
        scope = next(
            (scope for scope in self.workqueue if (scope.removeprefix(FOLDER) in WAITING_FILES) is waits), None
        )
        if scope is not None:
            self.workqueue.move_to_end(scope, last=False)
        elif waits:
            node.shutdown()
            return
        super()._assign_work_unit(node)
