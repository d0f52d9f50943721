"""The demo: a day of real flights as messages, and a verdict that does not rely on the scheduler's own claims.

Each flight is a message that is due at its departure. Workers simulate the flights and record them in logbooks. At the
end, checks compare the event stream and the logbooks with the timetable: no flight is lost, early or done twice, and no
aircraft is in two places at once. The demo uses the public client. Only the event stream and the clock are read
directly from the shards.

flights.py       the departures of a CSV file, validated
timetable.py     the day compressed to seconds: due time and duration of each flight
simulation.py    the run: enqueue, cancel, watch
pilots.py        the worker processes, each with many flights at once and a logbook
logbook.py       the file in which a worker records its landings
flight_board.py  the state of every flight, from the event stream
display.py       the flight board on a terminal, or as plain lines; the table at the end
checks.py        the verdict, from the event stream and the logbooks alone
"""
