"""What surrounds the steps of a model: batches, losses, parts, compiled functions."""

from __future__ import annotations

import contextlib
import functools
import math
import types
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.processes import current_processes
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.errors import InvalidStateError, InvalidValueError, require
from effdet_keras.images import SPARSE, check_pixels
from effdet_keras.labels import IGNORE
from effdet_keras.model.batch_norm import STATISTICS, batch_norms_of, statistics_of
from effdet_keras.train import auto_recipe
from effdet_keras.train.fitting import BATCH_SIZE
from effdet_keras.train.inputs import (
    Run,
    check_data,
    check_lengths,
    check_truth,
    is_valid_batch,
    with_checked_pixels,
)
from effdet_keras.train.losses import count_positives, segmentation_loss
from effdet_keras.train.optimizers import decay_loss
from effdet_keras.train.parts import Part, step_counter, steps_done, steps_per_update
from effdet_keras.train.resume import Place, PlaceKeeper
from effdet_keras.train.steps import BackendStep, EvaluationStep, step_of_backend


class ModelSteps:
    """What Keras and `train/steps` ask of `EfficientDet` around a step, as a mix-in."""

    place_keeper: PlaceKeeper | None = None  # of the `fit` under way, for checkpoints
    _place: Place | None = None  # where the training was whose file was loaded
    _run = Run()  # of the call under way

    # --- Data.

    def _batched(self, data, batch_size, training, **options):
        """A `DetectionDataset` in batches for this model, else what was given."""
        if not isinstance(data, DetectionDataset):
            return data, batch_size
        size = BATCH_SIZE if batch_size is None else batch_size
        return self.batches(data, size, training=training, **options), None

    def batches(
        self,
        dataset: DetectionDataset,
        batch_size: int = BATCH_SIZE,
        *,
        training: bool = False,
        epochs: int = 1,
        steps_per_epoch: int | None = None,
        **options: Any,
    ) -> Any:
        """`dataset.batches` in this model's image size, padding and labels.

        What `fit` makes of a `DetectionDataset`; call it to set more:
        `model.fit(model.batches(train, 16, training=True, scale_jitter=(0.8, 1.2)))`.
        With `recipe="auto"` scale jitter and mosaics are chosen from the number of
        images and `epochs`, of `steps_per_epoch` where that is given. Labels follow the
        model's `class_names`, where these hold all of the dataset's: COCO's 80 classes
        train a model of 90 outputs.
        """
        check_lengths(
            batch_size=batch_size, epochs=epochs, steps_per_epoch=steps_per_epoch
        )
        sizes = {
            "image_size": self.config.image_size,
            "pad_value": self.config.padding_rgb,
            "resize_method": self.config.resize_method,
            "masks": self.config.has_segmentation,
        }
        if training and (self.settings is None or self.settings.open_recipe.is_open):
            sizes["scale_jitter"] = auto_recipe.scale_jitter(len(dataset))
            passes = auto_recipe.passes_over_data(
                len(dataset), batch_size, epochs=epochs, steps_per_epoch=steps_per_epoch
            )
            sizes["augment"] = auto_recipe.augmentation(
                len(dataset), batch_size, passes
            )
        names = self.class_names
        # Where they do not, `inputs.check_data` says what is wrong.
        if names is not None and set(dataset.class_names) <= set(names):
            dataset = dataset.with_classes(names, self.category_ids)
        return dataset.batches(batch_size, training=training, **{**sizes, **options})

    def go_on_from(self, place: Mapping[str, Any]) -> None:
        """Makes the next `fit` go on from a `Place`, as a dict of its fields."""
        self._place = Place(**place)

    def resume_training(
        self, path: Any, info: Mapping[str, Any], steps: int | None
    ) -> None:
        """Makes the next `fit` go on from a file, or refuses a file it would lose.

        Args:
            path: of the file, for messages.
            info: what `archive.json` says, or an empty dict.
            steps: those that the optimizer in the file had done; None where the file
                does not say.
        """
        if self.settings is None:
            return
        done = steps_done(self.optimizer)
        if steps not in (None, done):
            raise InvalidStateError(
                f"'{path}' cannot be resumed here: {steps} steps were trained, but the "
                "state of its optimizer does not fit the optimizer that was made for "
                f"it, {type(self.optimizer).__name__} with the dtype policy "
                f"'{self.dtype_policy.name}'. The training would begin anew. Set the "
                "policy that it was trained with before you load it, such as "
                "`keras.config.set_dtype_policy('mixed_float16')`. To begin a new "
                "training from its weights, load it without `resume` (`weights=` of a "
                "run), and write to another folder."
            )
        if self.averages is not None and self.averages not in self._loaded:
            raise InvalidStateError(
                f"'{path}' cannot be resumed: it was trained with moving averages, and "
                "has none in it. Load it without `resume` to begin a new training."
            )
        if "place" in info:
            self.go_on_from(info["place"])
        elif info.get("epoch"):  # written outside of `fit`, at the end of an epoch
            self.go_on_from({"epoch": int(info["epoch"]), "steps": done})
        elif done:
            warnings.warn(
                f"'{path}' does not say in which epoch it was written: `fit` goes on "
                f"with its optimizer, which has done {done} steps, and counts epochs "
                "from 0. Give `initial_epoch=` to count from another one.",
                stacklevel=5,
            )

    def _place_to_go_on_from(self, initial_epoch):
        """The place of the file, where the training that begins is the one of it."""
        place, self._place = self._place, None
        if place is None or self.settings is None:
            return None
        if place.steps != steps_done(self.optimizer):
            if initial_epoch is None:
                warnings.warn(
                    f"The training begins anew, at epoch 0, and not after {place} of "
                    "the checkpoint: the model was compiled, frozen or trained after "
                    "it was loaded, so that its optimizer is not that of the "
                    "checkpoint. Load it again and call `fit` at once to continue its "
                    "training; or give `initial_epoch=`.",
                    stacklevel=4,
                )
            return None
        return place if initial_epoch in (None, place.epoch) else None

    # --- Keras' other calls; `fit` and `detect` are in the model's own file.

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """One training step; see `keras.Model.train_on_batch`, and `fit` for weights.

        Weights and averages change places twice in each call: many steps are faster
        with `fit`.
        """
        images = args[0] if args else kwargs.get("x")
        with self._training_on(None):
            self._run.trains = True
            if isinstance(images, np.ndarray):
                sparse = images[:, ::SPARSE, ::SPARSE]
                self._run.check_pixels(sparse, "a batch of images")
            self.score_settings = None
            if self.averages is not None:
                self.averages.restore()
            return super().train_on_batch(*args, **kwargs)

    def evaluate(
        self, x: Any = None, y: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        """Losses on labelled data. `x` may be a `DetectionDataset`; see `fit`.

        For COCO's numbers see `effdet_keras.callbacks.COCOEvaluation`.
        """
        refuse_where_several("`evaluate`")
        check_lengths(batch_size=batch_size, **kwargs)
        is_dataset = isinstance(x, DetectionDataset)
        x, batch_size = self._batched(x, batch_size, training=False)
        check_data(self, x, y)
        with self._running_on(x):
            if not is_dataset:
                x = with_checked_pixels(x, self._run)
            return super().evaluate(x, y, batch_size=batch_size, **kwargs)

    def predict(
        self, x: Any, batch_size: int | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Detections in letterboxed images, as padded arrays in pixels of the input.

        As `keras.Model.predict`; `x` may be a `DetectionDataset`. `detect` takes images
        of any size, and gives boxes in their pixels.

        Returns:
            Dict of arrays: `boxes` `[B, D, 4]` (`yxyx`), `scores` `[B, D]`, `labels`
            `[B, D]`, -1 in unused rows, and `num_detections` `[B]`; with a segmentation
            head also `class_map` `[B, H, W]`, uint8.
        """
        refuse_where_several("`predict`")
        check_lengths(batch_size=batch_size, **kwargs)
        is_dataset = isinstance(x, DetectionDataset)
        x, batch_size = self._batched(x, batch_size, training=False, masks=False)
        with self._running_on(x):
            if not is_dataset:
                x = with_checked_pixels(x, self._run)
            return super().predict(x, batch_size=batch_size, **kwargs)

    def predict_on_batch(self, x: Any, content_sizes: Any = None) -> dict[str, Any]:
        """As `predict`, of one batch of images `[B, H, W, 3]`, pixels 0-255.

        `content_sizes` is a float32 array `[B, 2]`, height and width of each image
        inside the input, for a `postprocess` with `drop_empty`; None where it fills it.
        """
        if isinstance(x, np.ndarray):
            check_pixels(x, "a batch of images", step=SPARSE)
        if content_sizes is not None:
            found = self._evaluated({"images": x, "content_sizes": content_sizes})
            return found["detections"]
        return self._step.predict_on_batch(super().predict_on_batch, self, x)

    # --- Losses, parts and averages.

    def _move_averages(self, step):
        if self.averages is None:
            return
        count = steps_per_update(self.optimizer)
        if count == 1 and not hasattr(self.optimizer, "dynamic_scale"):
            self.averages.update(step)
            return
        # A step that only adds up gradients, or whose gradients overflow, moves none.
        done = ops.copy(step_counter(self.optimizer)) // count
        moved = done > step // count
        self.averages.update(step // count, moved)

    def losses_of(
        self,
        truth: dict,
        outputs: dict[str, Any],
        is_counted: Any = None,
        training: bool = False,
    ) -> dict[str, Any]:
        """The losses of outputs, by the names under which `fit` logs them.

        Of images that are not `is_counted` `[B]` no loss is taken. `loss` is the sum,
        NaN where the ground truth is wrong.
        """
        terms = {"loss": 0.0}
        if self.config.has_detection:
            terms = _detection_losses(self, truth, outputs, is_counted, training)
        if self.config.has_segmentation:
            logits = outputs["segmentation_logits"]
            of_images = segmentation_loss(truth["masks"], logits)
            segmentation = _mean_of_counted(of_images, is_counted)
            loss = terms["loss"] + segmentation  # unweighted, as in the reference
            terms = {**terms, "loss": loss, "segmentation_loss": segmentation}
        for part in self.parts.values():
            if (more := part.loss(truth, outputs)) is not None:
                weight, value = more
                loss = terms["loss"] + weight * value
                terms = {**terms, "loss": loss, part.logs[0]: value}
        decay = decay_loss(self.settings.recipe.l2_decay, self.trainable_variables)
        is_valid = is_valid_batch(truth, self.config)
        loss = ops.where(is_valid, terms["loss"] + decay, float("nan"))
        return {**terms, "reg_l2_loss": decay, "loss": loss}

    def add_part(self, name: str, part: Part) -> None:
        """Lets something take part in training steps from now on."""
        self.parts[name] = part
        if self.settings is not None:
            self.settings.trackers.add(part.logs)
        self._forget_functions()

    def remove_part(self, name: str) -> None:
        """Ends what `add_part` began."""
        part = self.parts.pop(name)
        if self.settings is not None:
            self.settings.trackers.remove(part.logs)
        self._forget_functions()

    def _forget_functions(self):
        """Their graphs have the parts of before."""
        self.train_function = self.test_function = self.predict_function = None

    def of_parts(self, field: str) -> list[keras.Variable]:
        """The variables of one field of `Part`, of all parts."""
        return [v for part in self.parts.values() for v in getattr(part, field)]

    def updated_variables(self) -> list[keras.Variable]:
        """What the optimizer moves: what trains, and then that of the parts."""
        return self.trainable_variables + self.of_parts("trainable_variables")

    def batch_norm_statistics(self) -> list[keras.Variable]:
        """The moving means and variances of all batch norms."""
        others = self.non_trainable_variables
        return [v for v in others if v.name in STATISTICS]

    def moved_statistics(self) -> list[keras.Variable]:
        """Those of the batch norms that train."""
        return statistics_of([bn for bn in batch_norms_of(self) if bn.trainable])

    def rate_of_statistics(self) -> np.ndarray:
        """`1 - momentum` of each number of them; `[1]` where all have the same."""
        norms = [bn for bn in batch_norms_of(self) if bn.trainable]
        rates = np.float32([1.0 - bn.momentum for bn in norms])
        if len(set(rates)) < 2:
            return rates[:1]
        return np.repeat(rates, [2 * bn.moving_mean.shape[0] for bn in norms])

    @property
    def metrics(self):
        trackers = [] if self.settings is None else self.settings.trackers.metrics
        return [*super().metrics, *trackers]

    @property
    def metrics_variables(self):
        return [*super().metrics_variables, *self._step.carried_variables()]

    @functools.cached_property
    def _step(self) -> BackendStep:
        """What a training step does on the backend that runs."""
        return step_of_backend(self)

    def make_train_function(self, force: bool = False) -> None:
        is_new = force or self.train_function is None
        with self._step.making_function():
            super().make_train_function(force)
        if is_new:
            compiled = self._step.compiled(self.train_function)
            self.train_function = self._step.watched(compiled)
            if self.place_keeper is not None and self.place_keeper.must_skip:
                self.train_function = self.place_keeper.skipping(
                    self.train_function, self._step.skipped
                )

    def make_test_function(self, force: bool = False) -> None:
        is_new = force or self.test_function is None
        with self._step.making_function():
            super().make_test_function(force)
        if is_new:
            self.test_function = self._step.compiled(self.test_function)

    def make_predict_function(self, force: bool = False) -> None:
        is_new = force or self.predict_function is None
        super().make_predict_function(force)
        if is_new:
            self.predict_function = self._step.predicting(self.predict_function)

    def _maybe_symbolic_build(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: `compile` has built all, and with several workers Keras' fails."""

    @contextlib.contextmanager
    def _running_on(self, data) -> Iterator[None]:
        """What surrounds a call: errors are raised in plain words."""
        outer, self._run = self._run, Run(data)
        try:
            with self._run.plain_errors():
                yield
        finally:
            self._run = outer

    @contextlib.contextmanager
    def _training_on(self, data, keeper=None, dataset=None) -> Iterator[None]:
        """As `_running_on`; afterwards the averages are the weights."""
        outer, self.place_keeper = self.place_keeper, keeper
        self.training_dataset = dataset
        skips = keeper is not None and keeper.must_skip
        with self._running_on(data):
            try:
                if skips:
                    self.train_function = None  # `make_train_function` asks the keeper
                yield
            finally:
                self.place_keeper = outer
                self.training_dataset = None
                if skips:
                    self.train_function = None
                if self.averages is not None:
                    self.averages.swap_in()

    def evaluate_and_detect_on_batch(
        self, images: Any, truth: dict, is_counted: Any, content_sizes: Any = None
    ) -> tuple[dict[str, Any], dict[str, float]]:
        """Detections and losses of a batch, for `COCOEvaluation(losses=True)`.

        Images that fill up the batch are not `is_counted`.
        """
        rule = "A model that was never compiled has no losses: call `model.compile()`"
        require(self.settings is not None, rule, InvalidStateError, model=self.name)
        check_truth(truth, None, self.config)
        if isinstance(images, np.ndarray):
            check_pixels(images, "a batch of images", step=SPARSE)
        counted = np.asarray(is_counted, bool)
        arrays = {"images": images, **truth, "is_counted": counted}
        if content_sizes is not None:
            arrays["content_sizes"] = content_sizes
        outputs = self._evaluated(arrays)
        losses = {name: float(x[0]) for name, x in outputs["losses"].items()}
        if not math.isfinite(losses["loss"]):
            raise self.refusal(truth)
        return outputs["detections"], losses

    @functools.cached_property
    def _evaluation_step(self):
        """Keeps the `EvaluationStep`, where Keras does not take it for a layer."""
        return types.SimpleNamespace(step=None)

    def _evaluated(self, arrays):
        """What the `EvaluationStep` of the model as it is now returns of a batch."""
        kept = self._evaluation_step
        if kept.step is None or not kept.step.is_for(self):
            kept.step = EvaluationStep(self)
        return kept.step.predict_on_batch(arrays)

    def refusal(self, truth: dict, *, step: int | None = None) -> Exception:
        """The error for a batch whose loss is not finite; see `Run.refusal`."""
        return self._run.refusal(truth, self.config, step)


def refuse_where_several(what):
    """Raises where each of several processes would compute the same, and wait."""
    if current_processes().count > 1:
        raise InvalidValueError(
            f"{what} does not divide its work among several processes. For losses and "
            "AP use the callback `COCOEvaluation(dataset, losses=True)` or its "
            "`evaluate(model)`, which do."
        )


def _detection_losses(model, truth, outputs, is_counted, training):
    """The terms of `DetectionLoss`, with their sum as `loss`."""
    recipe, boxes, labels = model.settings.recipe, truth["boxes"], truth["labels"]
    # Rules and losses of one's own need not know what is seldom there.
    weights = {"weights": truth["weights"]} if "weights" in truth else {}
    class_targets, box_targets, *anchor_weights = recipe.matching(
        boxes, labels, model.anchors, model.config, **weights
    )
    options = {"anchor_weights": anchor_weights[0]} if anchor_weights else {}
    if set(model.config.box_scales) != {1.0}:
        options["box_scales"] = model.config.box_scales
    if is_counted is not None:
        class_targets = ops.where(is_counted[:, None], class_targets, IGNORE)
    num_positives = count_positives(class_targets, box_targets, *anchor_weights)
    parts = model.parts.values() if training else ()
    for one in (*parts, model._step):
        normalizer = one.normalizer(num_positives, recipe.loss.normalizer_of)
        if normalizer is not None:
            # A loss of one's own need not know what only parts of a batch need.
            options["normalizer"] = normalizer
            break
    return recipe.loss(
        class_targets,
        box_targets,
        outputs["class_logits"],
        outputs["box_deltas"],
        model.anchors,
        **options,
    )


def _mean_of_counted(of_images, is_counted):
    """The mean over the images of a batch that count."""
    if is_counted is None:
        return ops.mean(of_images)
    counted = ops.cast(is_counted, "float32")
    total = ops.sum(ops.where(is_counted, of_images, 0.0))
    return total / ops.maximum(ops.sum(counted), 1.0)
