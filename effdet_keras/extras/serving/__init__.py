"""A detector that answers over HTTP: `effdet-keras serve`."""
