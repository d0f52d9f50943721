"""Keeps Python's garbage collector off what a long-lived process has loaded."""

import gc


def freeze_gc() -> None:
    """To be called once all is loaded: modules and classes stay to the end, and to walk them takes 20 to 40 ms."""
    gc.collect()
    gc.freeze()
