"""The commands of `tickwheel`, one file for each command or group of commands.

A file declares its options, calls the client, and prints the result. It is imported when the command line names its
command, or when the help of the program lists all commands. So a command imports the packages of optional extras (gRPC,
workers, load) when it runs: without the extras, its help and all other commands work.

acl.py            users for the server's ACL file
bench.py          a short measurement of the server
cancel.py         the command that cancels messages
complete.py       the command that completes leased messages
demo.py           the demo: a day of flights
dequeue.py        the command that leases messages and prints them
dev.py            embedded server, event process and gRPC service in one program
doctor.py         the command that checks the server, the leaders and all records
enqueue.py        the command that adds one message, or many from a file
events.py         the event process
extend.py         the command that extends a lease
fail.py           the command that fails a leased message
import_celery.py  the command that moves waiting messages from Celery
inspect.py        get, messages, explain, counts, depth and forecast: commands that only read
load.py           the load generator and capacity report
namespace.py      the command that deletes a namespace
queue.py          commands that create, list, show, block, purge and delete queues
redrive.py        the command that retries errored messages
release.py        the command that releases leased messages
reschedule.py     the command that changes due time and deadline
route.py          routes of Celery tasks during a migration
schedules.py      next times of recurring tasks
serve.py          the gRPC service
setting.py        settings of the namespace
shards.py         leaders and inboxes of the shards; reset of epochs
token.py          the command that creates a token of the gRPC service
worker.py         worker processes of an app
"""
