"""Metric specifications, histograms and spans."""
