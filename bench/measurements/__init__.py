"""The measurements: one module for each group of rows."""
