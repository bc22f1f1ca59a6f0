"""What is wrong with a dataset: `check`, its report, and `effdet-keras inspect`."""
