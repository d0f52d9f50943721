"""The parts that measurements share: servers, calibration, the report.

bench_server.py          the server that is measured
cpu_clock.py             the CPU time of another process
echo_server.py           a gRPC server that answers with the request
closed_loop.py           unary gRPC calls in a closed loop
watched_service.py       the gRPC service, with a watch on its event loop
idle_calls.py            a program with thousands of idle calls to the service
large_requests.py        requests of the largest size, hostile and legal ones
manual_time.py           a client and the drivers of a server, with a clock that the program sets
timing_wheel_program.py  the CPU time of a timer in the package `timing_wheel`
busy_cores.py            keeps the cores awake during a measurement
calibration.py           the unit of the server's CPU time: one pipelined ZADD
measurement.py           the result of a measurement, and the size of its run
report.py, plots.py      results as a file, as a table, and as plots
checkout.py              the commit that a result belongs to, and the files that differ from a commit
further_values.py        the table with values from the details of the rows
readme.py                the sentences of the README with measured values
fault_campaigns.py       the table of the fault campaigns
pages.py                 the parts of the pages that the results determine
staleness.py             the rows that were measured with other code than the present code
source_files.py          the files that a measurement consists of
"""
