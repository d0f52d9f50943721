"""One run of a load: producers and workers in processes, and their measurements.

`run.run` creates the queues and starts the processes. It watches them until the work is done or a limit is reached, and
merges their measurements. Latencies of planned calls count from the planned time, so that a slow server cannot slow
down the load and appear fast. If the harness itself cannot keep up, the result reports that.

run.py           one run, from start to result
processes.py     the processes of a run, seen from the parent
process.py       the program of such a process
producer.py      sends messages and cancels as planned
worker.py        a simulated worker
poller.py        dequeue calls at planned times
batches.py       groups planned items into calls
payload.py       the payload of a message of a load
measurements.py  latencies, counters and their course over time
run_result.py    the result of a run, and its bottlenecks
"""
