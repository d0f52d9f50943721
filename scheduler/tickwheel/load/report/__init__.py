"""The report of a load run."""
