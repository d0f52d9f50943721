"""The stored format, byte for byte; no I/O."""
