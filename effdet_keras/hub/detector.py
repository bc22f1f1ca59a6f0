"""A whole detector from TF-Hub: images in, `Detections` out, nothing to train."""

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras.detections import Detections
from effdet_keras.errors import InvalidValueError
from effdet_keras.geometry.letterbox import boxes_in_image, letterbox
from effdet_keras.hub.module import detector_form
from effdet_keras.inference.detect import image_sources, pixels_of
from effdet_keras.inference.scores import ScoreRule

# The outputs (boxes, scores, classes) by form. Those of the Object Detection API
# are fractions of the image, those of google/automl's inspector are pixels.
_OUTPUTS = {
    "detection": ("detection_boxes", "detection_scores", "detection_classes"),
    "output": ("output_0", "output_1", "output_2"),
}


class HubDetector:
    """A detector module, such as `https://tfhub.dev/tensorflow/efficientdet/d0/1`.

    `EfficientDet.from_hub` makes it of a module that returns detections. The module
    itself scales the images, applies its score threshold and suppresses overlapping
    boxes.

    Args:
        module: `HubModule` that `is_detector`.
        class_names: sequence of strings, one per label, or None. The module's class 1
            is label 0. For the published ones: `effdet_keras.presets.COCO_CLASS_NAMES`.
        category_ids: sequence of ints, one per label, or None for label + 1.
    """

    def __init__(self, module, class_names=None, category_ids=None):
        self.module = module
        self.class_names = None if class_names is None else tuple(class_names)
        self.category_ids = None if category_ids is None else tuple(category_ids)
        self._form = detector_form(module)
        self._signature = module.loaded.signatures["serving_default"]
        _, inputs = self._signature.structured_input_signature
        if len(inputs) != 1 or len(next(iter(inputs.values())).shape) != 4:
            raise InvalidValueError(
                f"The detector {module.handle!r} must take one input, images [batch, "
                f"height, width, 3]. Received: {inputs}"
            )
        ((self._input_name, self._input),) = inputs.items()

    def detect(self, images, score_threshold=0.3, *, batch_size=1, verbose="auto"):
        """Finds objects in images of any size; see `EfficientDet.detect`.

        The module takes one image at a time: `batch_size` is accepted because that
        method has it, and changes nothing.
        """
        ScoreRule(self, score_threshold)  # which it has no thresholds for
        sources, is_single = image_sources(images)
        shows_progress = len(sources) > 1 if verbose == "auto" else bool(verbose)
        progress = keras.utils.Progbar(len(sources), unit_name="image")
        found = []
        for source in sources:
            found.append(self._detect(source, score_threshold))
            if shows_progress:
                progress.update(len(found))
        return found[0] if is_single else found

    def fit(self, *args, **kwargs):
        """Raises: a detector module has no training form."""
        raise NotImplementedError(
            f"The TF-Hub module {self.module.handle!r} returns finished detections: it "
            "has no class logits and box codes that a loss could be taken of. "
            "Fine-tune from a feature module (`.../feature-vector/1`), or weights: "
            '`EfficientDet.from_preset("efficientdet-d0", weights="coco", ...)`.'
        )

    compile = evaluate = fit

    def _detect(self, source, score_threshold):
        image = pixels_of(source)
        inputs, scale = self._inputs(image)
        outputs = self._signature(**{self._input_name: inputs})
        boxes, scores, classes = (
            np.asarray(outputs[n][0]) for n in _OUTPUTS[self._form]
        )
        if self._form == "detection":
            boxes = boxes * np.tile(inputs.shape[1:3], 2)
        kept = np.flatnonzero((scores >= score_threshold) & (scores > 0))
        return Detections(
            boxes=boxes_in_image(boxes[kept], scale, image.shape[:2]),
            scores=scores[kept],
            labels=classes[kept].round().astype("int32") - 1,
            class_names=self.class_names,
            category_ids=self.category_ids,
            image=source if isinstance(source, str) else image,
        )

    def _inputs(self, image):
        """The module's input, and what its pixels measure in those of the image."""
        batch, *size, _ = self._input.shape
        scale = 1.0
        if None not in size:
            image, scale = letterbox(image, tuple(size), (0.0, 0.0, 0.0))
            image, scale = ops.convert_to_numpy(image), float(scale)
        dtype = self._input.dtype
        if not dtype.is_floating:
            image = np.clip(np.round(image), 0, 255)
        images = np.repeat(np.asarray(image, dtype.as_numpy_dtype)[None], batch or 1, 0)
        return tf.constant(images), scale
