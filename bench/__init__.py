"""The benchmarks: every figure the project promises, measured. `python -m bench --help` says how."""
