"""One run of a load: producers and workers in processes, and their measurements.

`run.run` creates the queues and starts the processes. It waits until the work is done or a limit is reached, and then
merges the measurements of the processes. The latency of a planned call is measured from the planned time, so a server
that delays the load does not appear fast. If the load's own processes cannot keep up, the result reports this.

run.py           one run, from start to result
processes.py     the processes of a run, seen from the parent
process.py       the program of such a process
producer.py      the sender of planned messages and cancels
worker.py        a simulated worker
poller.py        dequeue calls at planned times
batches.py       groups of planned items for one call
payload.py       the payload of a message of a load
measurements.py  latencies, counters and their course over time
run_result.py    the result of a run, and its bottlenecks
"""
