"""`python -m tickwheel.event_process` runs an event process; the program is in `tickwheel.event_process.main`."""

from tickwheel.event_process.main import main

if __name__ == "__main__":
    main()
