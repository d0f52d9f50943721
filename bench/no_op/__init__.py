"""Tasks that do nothing, for Tickwheel, Celery and dramatiq. Each worker imports the module of its app.

tickwheel_app.py   the app for `tickwheel worker`
celery_app.py      the app for Celery
dramatiq_app.py    the app for dramatiq
progress_marks.py  the body of each task: counts the tasks and records times

three_queues_app.py has tasks of three queues that record when they run. migrated_app.py is a Celery app with three
queues that has moved to Tickwheel, and a program that calls its tasks. long_task_app.py has a task that lasts as long
as a measurement wants.
"""
