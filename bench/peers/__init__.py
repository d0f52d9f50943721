"""Other queues do the same work on the same kind of server, for the comparison in the README.

Each peer is a program. Its command is ``PROGRAM PHASE SOCKET COUNT``, and it prints one line of JSON:

enqueue    COUNT jobs without a delay, by one process               {"seconds": …}
drain      one worker runs all of these jobs                        {"seconds": …}, from the first job to the last
delay      COUNT jobs, due in days
late       COUNT jobs, 500 a second, due in 0.5 to 5 s              {"late_ms": […]}

__main__.py        `python -m bench.peers`: installs the peers, and measures each
tickwheel_peer.py  the program for Tickwheel
celery_peer.py     the program for Celery
bullmq.mjs         the program for BullMQ
"""
