"""An exported file that is used as the model it was made of."""

import numpy as np

from effdet_keras.anchors import anchors_of


class ExportedDetector:
    """What `detect` and the evaluation need of a model, from a `Runtime`.

    Args:
        runtime: `Runtime`.

    Attributes:
        config, class_names, category_ids, postprocess: of the exported model.
    """

    def __init__(self, runtime):
        description = runtime.description
        self.runtime = runtime
        self.config = description.config
        self.class_names = description.class_names
        self.category_ids = description.category_ids
        self.postprocess = description.postprocess
        self._anchors = anchors_of(self.config)

    def predict_on_batch(self, images):
        """Detections of letterboxed pictures, in pixels of the input.

        Args:
            images: float32 array `[B, H, W, 3]`, any `B`.

        Returns:
            Dict of arrays, as `Postprocess` returns.
        """
        size = self.runtime.description.batch_size or len(images)
        parts = []
        for start in range(0, len(images), size):
            batch = images[start : start + size]
            count = len(batch)
            if count < size:
                missing = np.zeros((size - count, *batch.shape[1:]), batch.dtype)
                batch = np.concatenate([batch, missing])
            outputs = self._detections(self.runtime.run(batch))
            parts.append({name: value[:count] for name, value in outputs.items()})
        return {n: np.concatenate([part[n] for part in parts]) for n in parts[0]}

    def _detections(self, outputs):
        if self.runtime.description.outputs == "raw":
            outputs = self.postprocess(outputs, self._anchors, self.config.image_size)
        return {name: np.asarray(value) for name, value in outputs.items()}
