"""The number of workers that a scenario needs, by simulation.

`hourly_needs.hourly_needs` simulates each hour with different numbers of workers. It yields the smallest number with
which the target share of the messages starts in time. `advice.advise` adds a comparison with a run: the measured waits,
and the waits in a simulation with the messages and the workers of the run.

advice.py        the overheads of a run, whether the simulator agrees with the run, and the workers needed
hourly_needs.py  workers needed in each hour of the day
simulator.py     a discrete-event simulation of workers
ready_queue.py   deliverable tasks of one queue, by the server's rules
due_tasks.py     tasks that are due in a period
selector.py      selectors of the simulated workers
"""
