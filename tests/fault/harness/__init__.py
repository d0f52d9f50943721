"""The fault harness: producers, workers and event processes under load and faults, and a checker of the result.

    python -m tests.fault.harness --seconds 600 --seed 1

plan, load                             all actions of a run, made from its seed without I/O
producer, worker, call_log             programs that record each call before and after it
deployment, system_under_test, faults  the servers and processes of a run, and its faults
run_evidence, checker                  the records of a run, and the check of its invariants, without I/O
"""
