"""The commands of `tickwheel`, one file for each command or group of commands.

A file declares its options, calls the client, and prints the result. The packages of optional extras (gRPC, workers,
load) are imported by the command that needs them, so that the other commands run without the extras and start faster.

acl.py            users for the server's ACL file
bench.py          a short measurement of the server
cancel.py         cancel messages
complete.py       complete leased messages
demo.py           the demo: a day of flights
dequeue.py        lease messages and print them
dev.py            embedded server, event process and gRPC service in one program
doctor.py         check the server, the leaders and all records
enqueue.py        add one message, or many from a file
events.py         the event process
extend.py         extend a lease
fail.py           fail a leased message
import_celery.py  move waiting messages from Celery
inspect.py        get, messages, explain, counts, depth and forecast: commands that only read
load.py           the load generator and capacity report
queue.py          create, list, show, block and unblock queues
redrive.py        retry errored messages
release.py        release leased messages
reschedule.py     change due time and deadline
route.py          routes of Celery tasks during a migration
schedules.py      next times of recurring tasks
serve.py          the gRPC service
setting.py        settings of the namespace
shards.py         leaders and inboxes of the shards; reset of epochs
token.py          create a token of the gRPC service
worker.py         worker processes of an app
"""
