"""`tickwheel load`: production load simulated, the server measured under it, and how many workers it needs.

source          a scenario by its name, from a file, or from a recording
scenario        what a load is made of; read by scenario_file and recording, of fields, curve, distributions, values
arrivals        the plan that follows from a scenario's seed
run             one run: children are started, watched and stopped, and what they measured is added up
child           a process of a run, with the producer (an open loop) or workers and pollers in it
meter           what a process measured
simulator       the same workers in memory, in no time; capacity asks it how many are needed
report          HTML with plots, and JSON
"""
