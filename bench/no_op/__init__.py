"""The same task that does nothing for Tickwheel, Celery and dramatiq; each app a module that its worker imports."""
