"""Coalesces concurrent calls of the service into fewer round trips to the server.

micro_batcher         batches of concurrent items
enqueue_batcher       batches of enqueues of single messages
poll_coalescer        shared polls of empty queues
coalescing_executor   shared round trips of concurrent plans
"""
