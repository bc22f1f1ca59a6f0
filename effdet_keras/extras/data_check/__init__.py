"""Finds the problems of a dataset: `check`, its report, and `effdet-keras inspect`."""
