"""`tickwheel worker`: processes that lease messages of an app's queues and run their tasks.

A supervisor starts the worker processes, renews their leases, restarts a process that ends, and kills a process whose
task ignores its time limit. The supervisor imports nothing of the app, so no task can block lease renewal. A worker
process has one or more consumers. A consumer leases a batch and runs its tasks one by one. A process writes its
progress to shared memory, so that the supervisor can settle the messages of a process that was killed. The package
`tickwheel.tasks` declares tasks and runs the task of a single message.

supervisor.py        starts, watches and stops the worker processes
process.py           the program of one worker process
consumer.py          selects a queue, takes a batch, runs its tasks, and repeats
completer.py         settles finished tasks on the server, in a thread
lease_renewer.py     renews the leases of one process, in the supervisor
orphan_settler.py    settles the messages of a process that has ended
shared_state.py      the progress of a process, in shared memory
ipc.py               the reports of a process to its supervisor, through a pipe
schedule_runner.py   fires the schedules of an app
time_limit.py        stops a task that exceeds its time limit, inside the process
async_runner.py      the event loop for the async tasks of a process
app_loader.py        imports the app, the selector and the queues of the command line
selectors.py         the queue selectors: how a worker chooses its next queue
stats.py             the counts of all processes
metrics.py           these counts for Prometheus
"""
