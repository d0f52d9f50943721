"""One task that does nothing, for Tickwheel, Celery and dramatiq. Each worker imports the module of its app."""
