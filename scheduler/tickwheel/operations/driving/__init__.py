"""Whether a program may drive a namespace as a candidate of last resort.

obstacles.py           the reason why such a program does not drive a namespace
leader_permissions.py  the commands of a leader that the user of the server may not run
"""
