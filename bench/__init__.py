"""Measures the performance of Tickwheel, mostly against goals. `python -m bench --help` lists the options."""
