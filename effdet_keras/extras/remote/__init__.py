"""Files at addresses: read, fetched once, and written behind a run."""
