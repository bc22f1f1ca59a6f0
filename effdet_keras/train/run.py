"""One call of `fit`, `evaluate` or `predict`: its images, its errors, its classes."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from effdet_keras._internal.processes import current_processes
from effdet_keras.category_ids import category_ids_or_default, extend_category_ids
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.pipeline.image_reader import ImageReader, readers_of
from effdet_keras.data.record import BACKGROUND_NAME
from effdet_keras.errors import InvalidValueError, NonFiniteLossError
from effdet_keras.train.truth import explain_batch


class Run:
    """What is known of the data of one call, for errors in plain words."""

    def __init__(self, data: Any = None) -> None:
        self._readers: list[ImageReader] = readers_of(data)
        self._error = None  # what stopped a step: the backend may hide it in its own
        for reader in self._readers:
            reader.error = None

    @contextlib.contextmanager
    def plain_errors(self) -> Iterator[None]:
        """Context that raises what stopped the run, not what the backend made of it."""
        try:
            yield
        except Exception as error:
            errors = [self._error, *(reader.error for reader in self._readers)]
            errors.append(current_processes().plain_error(error))
            plain = next((e for e in errors if e is not None), error)
            if plain is error:
                raise
            raise plain from None

    def refusal(self, truth: dict, config: Any, step: int | None) -> Exception:
        """The error for a batch whose loss is NaN or infinite."""
        fault = explain_batch(truth, config)
        where = "an evaluation step" if step is None else f"training step {step}"
        batch = f"The batch of {where} {self._names(truth.get('image_id'))}"
        if fault is not None:
            self._error = InvalidValueError(
                f"{fault}. {batch}. This batch did not change the model."
            )
            return self._error
        error = NonFiniteLossError(
            "The loss is not finite, or its gradients or the statistics of batch norm "
            f"are not. {batch}. This batch did not change the model, which can still "
            "be saved. Usual causes: a learning rate too high for the batch size, no "
            "`clip_norm`, float16 where bfloat16 would hold the values, or pixels "
            "that are not finite or far from 0-255."
        )
        # Of several replicas one may know more: that its ground truth is wrong.
        self._error = self._error or error
        return error

    def _names(self, image_ids):
        if image_ids is None:
            return "names no images (its ground truth has no 'image_id')"
        ids = ops.convert_to_numpy(image_ids).reshape(-1).tolist()
        if len(self._readers) == 1:
            return f"has the images {', '.join(map(self._readers[0].name_of, ids))}"
        return f"has the images with `image_id` {', '.join(map(str, ids))}"


# --- Detections of a batch, and its losses, from one forward pass.


class EvaluationStep(keras.Model):
    """What a model finds inside the images of a batch, and what its loss says of it.

    Keras' own `predict_on_batch` compiles it, on every backend.

    Args:
        model: `EfficientDet`, with the averages or the weights that it has at each
            call; compiled, where losses are asked for.

    Call arguments:
        inputs: dict of `images` `[B, H, W, 3]`; maybe `content_sizes` `[B, 2]`, see
            `Postprocess`; and for losses `boxes` `[B, M, 4]`, `labels` `[B, M]`, and
            bools `is_counted` `[B]`: other images fill up the batch, and belong to no
            loss.

    Returns:
        Dict of `detections`, as `Postprocess` returns, and of `losses`, float32 `[1]`
        by name, empty without `labels`.
    """

    def __init__(self, model: Any) -> None:
        # In mixed precision Keras would cast images and boxes: the model does it.
        super().__init__(name="evaluation_step", dtype="float32")
        self.model = model
        self.jit_compile = model.jit_compile
        self.run_eagerly = model.run_eagerly
        self._made_for = _what_is_traced(model)
        self.built = True  # it has no variables but the model's

    def is_for(self, model: Any) -> bool:
        """Whether the model still has the loss and postprocess that were traced."""
        now = _what_is_traced(model)
        return len(now) == len(self._made_for) and all(
            one is other for one, other in zip(now, self._made_for)
        )

    def predict_on_batch(self, x: dict[str, Any]) -> dict[str, Any]:
        step = self.model._step
        return step.predict_on_batch(super().predict_on_batch, self, x)

    def call(self, inputs):
        model, losses = self.model, {}
        outputs = model(inputs["images"], training=False)
        if "labels" in inputs:
            counted = inputs["is_counted"]
            losses = model.losses_of(inputs, outputs, is_counted=counted)
        return {
            "detections": model.detect_outputs(outputs, inputs.get("content_sizes")),
            "losses": {name: ops.reshape(x, (1,)) for name, x in losses.items()},
        }


def _what_is_traced(model):
    return (
        *(model.settings, model.postprocess, model.jit_compile, model.quantization),
        *model.variables,
    )


# --- A model takes the class names and category ids of the dataset it is trained on.


def adopt_classes(model: Any, data: Any) -> None:
    """Gives a model the category ids of its dataset, and names where it has none.

    Names of the classes of pixels as well, where it has a segmentation head. Where
    the data has none, they may be those of the model's objects.

    Nothing changes where the model has `category_ids`, where the data does not tell
    its own, or where the classes of both differ.
    """
    _adopt_seg_class_names(model, data)
    classes = [data] if isinstance(data, DetectionDataset) else readers_of(data)
    known = {(tuple(c.class_names), _ids(c)) for c in classes}
    if model.category_ids is not None or len(known) != 1:
        return
    ((names, ids),) = known
    if ids is None:
        return
    if model.class_names is None:
        if len(names) == model.num_classes:
            model.class_names, model.category_ids = names, ids
        return
    if tuple(model.class_names) == names:
        model.category_ids = ids
        return
    id_of = dict(zip(names, ids))
    default = dict(
        zip(model.class_names, category_ids_or_default(None, model.num_classes))
    )
    is_part = set(names) <= set(default)
    if is_part and any(default[name] != id_of[name] for name in names):
        model.category_ids = tuple(extend_category_ids(model.class_names, id_of))


def _adopt_seg_class_names(model, data):
    sources = [data] if isinstance(data, DetectionDataset) else readers_of(data)
    known = {source.seg_class_names for source in sources} - {None}
    config = model.config
    if not config.has_segmentation or model.seg_class_names is not None:
        return
    if not known and config.has_detection:
        _name_by_objects(model)
    elif len(known) == 1 and len(names := known.pop()) == config.seg_num_classes:
        model.seg_class_names = names


def _name_by_objects(model):
    """Names the classes of pixels as masks that are drawn of objects have them."""
    names = (BACKGROUND_NAME, *(model.class_names or ()))
    if len(names) == model.config.seg_num_classes > 1:
        model.seg_class_names = names
        warnings.warn(
            "The ground truth does not name the classes of its masks. They are taken "
            f"to be {names}, as where masks are drawn of objects. If they are others, "
            "set `model.seg_class_names`.",
            stacklevel=4,
        )


def _ids(classes):
    ids = getattr(classes, "category_ids", None)
    return None if ids is None else tuple(ids)
