"""The benchmarks, which measure every value that the project promises. `python -m bench --help` lists the options."""
