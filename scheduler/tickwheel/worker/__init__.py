"""`tickwheel worker`: processes that lease messages of an app's queues and run their tasks.

A supervisor starts the worker processes, renews their leases, restarts a process that ends, and kills a process whose
task ignores its time limit. The supervisor imports nothing of the app, so no task can block lease renewal. A worker
process has one or more consumers. A consumer leases a batch and runs its tasks one by one. A process writes its
progress to shared memory, so that the supervisor can settle the messages of a process that was killed. The package
`tickwheel.tasks` declares tasks and runs the task of a single message.

supervisor.py        the supervisor of the worker processes
supervised_process.py  a worker process, as its supervisor knows it
process.py           the program of one worker process
supervisor_watch.py  the end of a process whose supervisor has ended
start_hooks.py       the errors of the hooks that run when a process starts
process_group.py     the end of a worker process and of all programs that its tasks have started
consumer.py          the loop that selects a queue, takes a batch and runs its tasks
early_release.py     the thread that releases messages that wait behind a long task
completer.py         the thread that settles finished tasks on the server
lease_renewer.py     the renewal of the leases of one process, in the supervisor
last_resort_driver.py  the child process that drives while no event process does, and the warnings
driver_alarm.py      a thread that warns while no event process drives the namespace
orphan_settler.py    the settlement of the messages of a process that has ended
shared_state.py      the progress of a process, in shared memory
ipc.py               the reports of a process to its supervisor, through a pipe
schedule_runner.py   the thread that fires the schedules of an app
queue_maximum.py     the maximum of attempts that a queue sets
task_log.py          the log of tasks: received, and the outcome that the server has accepted
banner.py            the first lines of the log: version, server, queues, tasks, concurrency
exit_reason.py       why a worker process has ended, as a text
blocked_queues.py    the log of queues that become blocked and unblocked
queue_alarm.py       a thread that logs that queues were deleted or created
missing_queues.py    the queues that a full server does not create when the worker starts
namespace_loss.py    the end of a worker whose namespace is gone
time_limit.py        the time limit of a task, enforced inside the process
async_runner.py      the event loop for the async tasks of a process
app_loader.py        the app, the selector and the queues that the command line names
selectors.py         the queue selectors: how a worker chooses its next queue
health.py            whether a process has started, and the loops of the supervisor and the processes come round
stats.py             the counts of all processes
metrics.py           these counts for Prometheus
"""
