"""Detection in more images than one process should look at: shards, parts, rows."""

from typing import TYPE_CHECKING

from effdet_keras._internal.lazy_names import lazy_names

if TYPE_CHECKING:
    from effdet_keras.extras.bulk.batch_detector import BatchDetector

__all__ = ["BatchDetector"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__, {"BatchDetector": "extras.bulk.batch_detector"}
    )
