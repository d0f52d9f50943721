"""Values of the domain, and their validation; no I/O."""
