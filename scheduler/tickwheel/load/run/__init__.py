"""A load run: producers and workers in processes, and what they measured."""
