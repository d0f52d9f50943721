"""`python -m tickwheel.driving` runs an event process; the program is `tickwheel.event_process.main`."""

from tickwheel.event_process.main import main

if __name__ == "__main__":
    main()
