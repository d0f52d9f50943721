"""The demo: a day of real flights through the scheduler, and a verdict that does not take its word for it.

flights     what a file of departures says, checked
timetable   the day compressed to seconds: when each flight is due, how long it takes
pilots      the worker processes: each flies many flights at once, and keeps a logbook
logbook     what a worker writes down by itself
day         the run: enqueue, cancel, watch
board       what is known of every flight, from the event stream
view        the board on a terminal, or as plain lines
verdict     the checks, from the event stream and the logbooks alone
"""
