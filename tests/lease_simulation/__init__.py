"""A simulation of the election by lease: the product's own decisions on simulated hosts, servers and networks.

events.py    simulated time, and the threads of simulated processes
server.py    a simulated server: the scripts of the election and of the wheel, and its earlier states
process.py   one event process: the election's thread and a loop for each shard
world.py     the network, the load and the checks
faults.py    kills, pauses, failovers, steps of the clock and others
mutants.py   planted bugs, which the checks must detect
"""
