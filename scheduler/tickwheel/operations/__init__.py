"""What can be done with queues and messages, as plans without I/O (`tickwheel.plan`), a file for each kind."""
