"""Excludes the modules and classes of a long-lived process from Python's garbage collection."""

import gc


def freeze_gc() -> None:
    """Exclude all existing objects from garbage collection. Call this once, after the process has loaded its modules.

    Modules and classes live until the end of the process, and a collection that walks them takes 20 to 40 ms.
    """
    gc.collect()
    gc.freeze()
