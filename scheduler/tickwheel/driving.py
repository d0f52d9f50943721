"""`python -m tickwheel.driving` runs an event process, as `python -m tickwheel.event_process` does."""

from tickwheel.event_process.main import main

if __name__ == "__main__":
    main()
