"""Detection in more images than one process should look at: shards, parts, rows."""
