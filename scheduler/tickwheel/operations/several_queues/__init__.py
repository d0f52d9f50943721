"""Dequeue of several queues in one call, and the wait for the messages of several queues.

dequeue_several.py    SeveralQueues: a batch of one of several queues, chosen by a selector
message_wait.py       MessageWait: waits until one of several queues may have messages; leases nothing
"""
