"""`tickwheel worker`: processes that run the tasks of an app, queue by queue."""
