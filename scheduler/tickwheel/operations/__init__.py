"""What can be done with queues and messages, as plans without I/O (`tickwheel.plan`): one file for each kind of call."""
