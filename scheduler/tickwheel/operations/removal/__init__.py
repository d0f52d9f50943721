"""Removal of messages, queues and namespaces. Each of these operations works page by page and can be repeated.

purge.py              end and remove the messages of a queue
delete_queue.py       delete a queue
queue_numbers.py      numbers of deleted queues
delete_namespace.py   delete a namespace
"""
