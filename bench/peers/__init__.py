"""Other queues, given the same work on the same server: what the README's comparison says.

Each peer is a program that is called as ``PROGRAM PHASE SOCKET COUNT`` and answers with one line of JSON:

enqueue    COUNT immediate jobs, as fast as one process can         {"seconds": …}
drain      one worker process does them all                         {"seconds": …}, from its first to its last
delay      COUNT jobs, due in days
late       COUNT jobs at RATE a second, due in 0.5 to 5 s           {"late_ms": […]}
"""
