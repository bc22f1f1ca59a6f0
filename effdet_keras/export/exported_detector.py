"""An exported file, used as the model it was made of: in NumPy, without Keras."""

import numpy as np

from effdet_keras.geometry.anchors import anchors_of
from effdet_keras.geometry.box_ops import area, clip_boxes
from effdet_keras.postprocess.in_numpy import finished_arrays, nothing_found_in_numpy


class ExportedDetector:
    """What `detect` and the evaluation need of a model, from a `Runtime`.

    Args:
        runtime: `Runtime`.

    Attributes:
        config, class_names, category_ids, seg_class_names, postprocess,
            score_settings: of the exported model.
    """

    def __init__(self, runtime):
        description = runtime.description
        self.runtime = runtime
        self.config = description.config
        self.class_names = description.class_names
        self.category_ids = description.category_ids
        self.seg_class_names = description.seg_class_names
        self.postprocess = description.postprocess
        self.score_settings = description.score_settings
        self._is_raw = description.outputs == "raw"
        has_anchors = self._is_raw and self.config.has_detection
        self._anchors = anchors_of(self.config) if has_anchors else None

    def predict_on_batch(self, images, content_sizes=None):
        """Detections of letterboxed images, in pixels of the input.

        Args:
            images: float32 array `[B, H, W, 3]`, any `B`.
            content_sizes: float32 array `[B, 2]`, see `Postprocess`; or None. A file
                with detections cannot be told it: what such a file found beside the
                images is left out afterwards.

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
            sizes = None
            if content_sizes is not None:
                sizes = np.resize(content_sizes[start : start + count], (size, 2))
            outputs = self.detect_outputs(self.runtime.run(batch), sizes)
            parts.append({name: value[:count] for name, value in outputs.items()})
        return {n: np.concatenate([part[n] for part in parts]) for n in parts[0]}

    def detect_outputs(self, outputs, content_sizes=None):
        """What the runtime returned to detections, in pixels of the input.

        Args:
            outputs: dict of arrays, as `Runtime.run` returns.
            content_sizes: as of `predict_on_batch`.

        Returns:
            Dict of arrays, as `Postprocess` returns.
        """
        if self._is_raw:
            return finished_arrays(
                outputs, self.postprocess, self._anchors, self.config, content_sizes
            )
        if not self.config.has_detection:
            nothing = nothing_found_in_numpy(len(outputs["class_map"]))
            outputs = {**nothing, **outputs}
        outputs = {name: np.asarray(value) for name, value in outputs.items()}
        if content_sizes is not None:
            return {**outputs, **_without_empty(outputs, content_sizes)}
        return outputs


def _without_empty(outputs, content_sizes):
    """Detections of which something lies inside of the images, first."""
    boxes = clip_boxes(np.array(outputs["boxes"]), content_sizes[:, None])
    unused = np.arange(boxes.shape[1]) >= outputs["num_detections"][:, None]
    unused |= area(boxes) <= 0
    order = np.argsort(unused, axis=1, kind="stable")
    unused = np.take_along_axis(unused, order, 1)
    nothing = {"boxes": 0, "scores": 0, "labels": -1}
    rows = {
        name: np.where(
            unused.reshape(unused.shape + (1,) * (outputs[name].ndim - 2)),
            outputs[name].dtype.type(nothing[name]),
            np.stack([v[o] for v, o in zip(values, order)]),
        )
        for name, values in {**outputs, "boxes": boxes}.items()
        if name in nothing
    }
    counts = (~unused).sum(axis=1).astype(outputs["num_detections"].dtype)
    return {**rows, "num_detections": counts}
