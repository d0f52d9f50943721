"""The load of a scenario: its file format, its parts, and the plan of arrivals.

A `Scenario` does no I/O. Most of its times are seconds of the scenario's day, and a run divides them by the speed-up.
All random choices follow from the seed, so that every process that reads the same `Source` plans the same arrivals. The
text of an error contains the name of the file, the field or line, the value, and the allowed values.

source.py           a scenario by name, TOML file or recording, with the changes of the command line
scenario.py         the scenario: queues, arrivals, workers
scenario_file.py    scenarios from TOML files
toml_fields.py      strict reading of TOML fields
recording.py        recorded loads from CSV files
arrival_rate.py     messages per second over the day
distributions.py    random durations
metadata_values.py  random metadata values
arrivals.py         the plan: every message with its time, delay, run time and outcome
"""
