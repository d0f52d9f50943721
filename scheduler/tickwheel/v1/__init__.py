"""Made from proto/tickwheel/v1 by `make proto`."""
