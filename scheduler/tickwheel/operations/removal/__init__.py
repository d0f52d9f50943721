"""Removal of messages, queues and namespaces. Each of these operations works page by page and can be repeated.

purge.py              end and remove the messages of a queue
delete_queue.py       delete a queue
queue_numbers.py      numbers of deleted queues
free_numbers.py       the numbers that calls of this process may give to new queues
queue_pages.py        the rows of the key `queues`, page by page
delete_namespace.py   delete a namespace
election_members.py   whether processes take part in the election by lease
key_search.py         find and remove the keys of a namespace on all primaries
placement.py          the processes of the primaries and their hash slots
"""
