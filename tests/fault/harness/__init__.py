"""The fault harness: producers, workers and event processes under load and faults, and a checker of the result.

    python -m tests.fault.harness --seconds 600 --seed 1

A campaign is a plan of runs. A run starts servers and processes, applies a load, injects faults, waits until all
messages have ended, and checks the evidence.

plan.py, rows.py, load.py      the runs of a campaign, the table of faults, and the load of a run, from the seed
run.py, settings.py            one run from start to end, and the settings of its programs
producer.py, worker.py         programs that make the calls, and call_log.py, the log of their calls
system_under_test.py           the processes of a run; restarted_process.py restarts a process that ends
deployment.py                  a single server; replicated_deployment.py and cluster_deployment.py have replicas
elections.py, relay.py         the election and the relay of a run; shared_services.py starts ZooKeeper and Kafka
idle_app.py                    the app of workers that drive a run without event processes
self_killing_relay.py          an event process whose relay can kill it
faults.py                      the kinds of faults and their injection; the modules `*_faults.py` and failovers.py have
                               the faults of servers, clusters, links, clients, elections and the relay
collect.py, run_evidence.py    the evidence of a run
claims.py, lives.py            all claims of shards, and the life of each message, from the evidence
checker.py                     the check of the invariants, without I/O; lateness.py computes how late messages were
aftermath.py, leftovers.py     checks of the data after all messages have ended
report.py, coverage.py         the report of a campaign, and the rows that the campaigns of a commit have reached
"""
