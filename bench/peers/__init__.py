"""Other queues with the same work on the same server, for the comparison in the README.

Each peer is a program. Its command is ``PROGRAM PHASE SOCKET COUNT``, and it prints one line of JSON:

enqueue    COUNT jobs without a delay, by one process               {"seconds": …}
drain      one worker runs all of them                              {"seconds": …}, from the first to the last
delay      COUNT jobs, due in days
late       COUNT jobs at RATE a second, due in 0.5 to 5 s           {"late_ms": […]}
"""
