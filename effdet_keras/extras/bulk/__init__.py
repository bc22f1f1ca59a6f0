"""Detection in more images than one process should look at: shards, parts, rows."""

from effdet_keras.extras.bulk.batch_detector import BatchDetector

__all__ = ["BatchDetector"]
