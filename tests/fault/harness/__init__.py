"""The fault harness: producers, workers and event processes at work, faults upon them, a checker of what came of it.

    python -m tests.fault.harness --seconds 600 --seed 1

plan, load      pure: everything that a run will do, from its seed; the same seed is the same plan
producer, worker  programs that write down each call before and after (history)
deployment, system_under_test, faults  the servers and processes of a run, and what is done to them
run_evidence, checker  what was written down by all, and whether the invariants hold in it (pure)
"""
