"""Measures the performance of Tickwheel, mostly against goals. `python -m bench --help` lists the options.

registry.py    the measurements and their names
measurements/  one module for each group of rows
harness/       the parts that measurements share
no_op/         tasks that do nothing
peers/         other queues, for the comparison in docs/comparison.md
results/       the latest results and plots
"""
