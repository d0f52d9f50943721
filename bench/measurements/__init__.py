"""What is measured: one module for each group of rows."""
