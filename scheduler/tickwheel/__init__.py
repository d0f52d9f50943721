"""A delay scheduler and priority queue on Redis or Valkey."""

__version__ = "0.1.0"
