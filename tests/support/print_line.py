"""Whole lines on the standard output of a program whose log goes to the same file."""

import sys


def print_line(*words: object) -> None:
    """Print the words as a line in one write, so that a log line cannot come between the line and its end.

    With ``PYTHONUNBUFFERED``, ``print`` writes each argument and the end of the line separately.
    """
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()
