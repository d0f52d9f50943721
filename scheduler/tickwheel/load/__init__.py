"""`tickwheel load`: production load on a real server, and the number of workers that the load needs.

A scenario describes a day: the messages that arrive, the duration of their work, and the workers. A run plans the
messages from a seed and sends them as planned, even if the server is slow (an open loop). The simulator runs the same
workers in memory, and computes the number of workers for each hour of the day. One report contains both results. The
package calls the server only through the public client.

scenario/   the load: scenario files, recordings, and the plan of arrivals
run/        one run: its processes, producers, workers and measurements
capacity/   the simulator, and the number of workers per hour
report/     the report as JSON and as an HTML page
scenarios/  the scenarios of the package, as TOML files
"""
