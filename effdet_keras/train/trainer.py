"""`Trainer`: what `EfficientDet` adds to `keras.Model` to train. Start at `fit`."""

from __future__ import annotations

import contextlib
import functools
import math
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.label_constants import IGNORE
from effdet_keras._internal.processes import current_processes
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.errors import InvalidStateError, InvalidValueError
from effdet_keras.train import auto_recipe, inputs
from effdet_keras.train.averages import SwapEMA
from effdet_keras.train.compiling import Compiling
from effdet_keras.train.distillation import LOSS as DISTILLATION
from effdet_keras.train.fit_callbacks import (
    EpochLines,
    FiniteWeights,
    flat,
    let_go_afterwards,
    with_own_callbacks,
)
from effdet_keras.train.losses import count_positives, segmentation_loss
from effdet_keras.train.resume import DataOrder, FromPlaceOn, Place, PlaceKeeper
from effdet_keras.train.run import EvaluationStep, Run, adopt_classes
from effdet_keras.train.truth import is_valid_batch

_BATCH_SIZE = 8  # of a dataset, where none is given


class Trainer(Compiling):
    """Mix-in of `keras.Model`: `fit`, `evaluate` and `predict`, on every backend.

    What `compile` set (`train/compiling.py`) is in `settings`. What differs from
    backend to backend is behind `_step`, a `BackendStep`. The class that mixes it in
    offers `anchors`, `config`, `class_names`, `category_ids`, `score_settings`,
    `detect_step` and `detect_outputs`.
    """

    _run = Run()  # of the call under way
    # Of the `fit` under way; checkpoints ask it for the place.
    place_keeper: PlaceKeeper | None = None
    _place: Place | None = None  # that the file tells of which was loaded

    @functools.cached_property
    def _evaluation_step(self):
        """Keeps the `EvaluationStep`, where Keras does not take it for a layer."""
        return types.SimpleNamespace(step=None)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int | None = None,
        verbose: int | str = "auto",
        callbacks: Any = None,
        *,
        validation_data: Any = None,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Trains. All arguments of `keras.Model.fit`, and datasets of our own.

        Outside the training step the model has one set of weights: the moving
        averages, where there are any. So validation, the `on_epoch_end` of
        callbacks, `detect`, `evaluate`, `get_weights`, saved files and exports all
        have the same weights. The weights of training are kept beside them, in
        files as well, and the next `fit` goes on from them, bit by bit. Only
        callbacks between the steps of an epoch (`on_epoch_begin`,
        `on_train_batch_...`) see the weights of training. A `fit` that is stopped by
        an error or by Ctrl-C leaves the model as one that ends.

        A model without `category_ids` takes those of the dataset, and a model
        without `class_names` takes its names.

        Args:
            x: batches of `(images, {"boxes", "labels"})` in any form that Keras
                takes; or a `DetectionDataset`, which is then batched in this
                model's `image_size`, with augmentation.
            y: dict of ground truth, where `x` is an array of images.
            batch_size: int, for arrays (default 32) and datasets (default 8).
            epochs: int; None is 1, and with `recipe="auto"` and a small
                `DetectionDataset` enough for 1,000 steps.
            verbose: "auto", one line per epoch with loss, AP and the best AP so far;
                1, Keras' progress bar with all numbers; 2, Keras' line per epoch; 0,
                nothing.
            callbacks: list of `keras.callbacks.Callback`.
            validation_data: what `x` may be, or `(images, ground truth)`.
            **kwargs: more of `keras.Model.fit`. `initial_epoch` is where the
                checkpoint was, for a model of `from_archive(..., resume=True)`, and
                else 0. Batches of our own have the order and the augmentation of the
                epoch that it names.

        Returns:
            `keras.callbacks.History`.

        Raises:
            ValueError: If the data is empty, not in batches, of another image size
                or of other classes than the model, or the ground truth of a batch is
                wrong.
            FloatingPointError: If a loss is NaN or infinite; the message names
                the step and the images. That batch did not change the weights.
        """
        if validation_data is not None:
            _refuse_where_several("`validation_data`")
            validation_data, _ = self._batched(
                validation_data, batch_size, training=False
            )
        self.score_settings = None  # an evaluation of other weights chose them
        dataset, chosen = x, _chosen_by_fit(x, batch_size=batch_size, epochs=epochs)
        if epochs is None:
            epochs = self._num_epochs(dataset, batch_size)
        place = self._place_to_go_on_from(kwargs.get("initial_epoch"))
        if place is not None:
            kwargs["initial_epoch"] = place.epoch
            _say_where(place, epochs, verbose)
        seed = None if place is None else place.seed
        x, batch_size = self._batched(x, batch_size, training=True, seed=seed)
        inputs.check_data(self, x, y)
        inputs.check_validation_data(self, validation_data)
        adopt_classes(self, dataset)
        if hasattr(x, "element_spec"):
            kwargs.setdefault("shuffle", False)  # Keras warns that it cannot
        initial_epoch = kwargs.get("initial_epoch", 0)
        if self.settings is not None:
            self._fit_to_length(
                x,
                batch_size,
                kwargs.get("steps_per_epoch"),
                epochs - initial_epoch,
                chosen_by_fit=chosen,
                verbose=verbose != 0,
                steps_of_epoch=0 if place is None else place.step,
            )
        has_epoch_lines = verbose == "auto"
        keeper = PlaceKeeper(
            DataOrder(x, kwargs.get("steps_per_epoch"), initial_epoch),
            place,
            is_given_batches=self._step.is_given_batches,
        )
        callbacks = with_own_callbacks(
            callbacks,
            self,
            first=[keeper, *self._swaps(callbacks), FiniteWeights()],
            last=[EpochLines()] if has_epoch_lines else [],
            wrapped=lambda one: FromPlaceOn(one, keeper) if keeper.must_skip else one,
        )
        keeper.watch(getattr(callbacks, "callbacks", callbacks))
        with (
            self._running_on(x),
            self._keeping_place(keeper),
            self._averages_afterwards(),
            let_go_afterwards(callbacks),
        ):
            return super().fit(
                self._step.data_of_fit(x),
                y,
                batch_size=batch_size,
                epochs=epochs,
                verbose=0 if has_epoch_lines else verbose,
                callbacks=callbacks,
                validation_data=validation_data,
                **kwargs,
            )

    def _swaps(self, callbacks):
        """The callback that swaps weights and averages: one that is given, or new."""
        given = [one for one in flat(callbacks) if isinstance(one, SwapEMA)]
        return given[:1] or ([] if self.averages is None else [SwapEMA()])

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """One training step; see `keras.Model.train_on_batch`, and `fit` for weights.

        Weights and averages change places twice in each call, which `fit` does once
        per epoch: many steps are faster with `fit`.
        """
        with self._running_on(None), self._averages_afterwards():
            self.score_settings = None
            if self.averages is not None:
                self.averages.restore()
            return super().train_on_batch(*args, **kwargs)

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Losses on labelled data. `x` may be a `DetectionDataset`; see `fit`.

        For COCO's numbers see `effdet_keras.callbacks.COCOEvaluation`.
        """
        _refuse_where_several("`evaluate`")
        x, batch_size = self._batched(x, batch_size, training=False)
        inputs.check_data(self, x, y)
        with self._running_on(x):
            return super().evaluate(x, y, batch_size=batch_size, **kwargs)

    def predict(
        self, x: Any, batch_size: int | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Detections in letterboxed images, as padded arrays in pixels of the input.

        `detect` takes images of any size, and gives boxes in their pixels.

        Args:
            x: `DetectionDataset`, which is batched in this model's `image_size`,
                in its order; or whatever `keras.Model.predict` takes.
            batch_size: int, for arrays (default 32) and datasets (default 8).
            **kwargs: more of `keras.Model.predict`, such as `verbose`.

        Returns:
            Dict of arrays: `boxes` `[B, D, 4]` (`yxyx`), `scores` `[B, D]`, `labels`
            `[B, D]`, -1 in unused rows, and `num_detections` `[B]`; with a segmentation
            head also `class_map` `[B, H, W]`, uint8.
        """
        _refuse_where_several("`predict`")
        x, batch_size = self._batched(x, batch_size, training=False, masks=False)
        with self._running_on(x):
            return super().predict(x, batch_size=batch_size, **kwargs)

    def predict_on_batch(self, x: Any, content_sizes: Any = None) -> dict[str, Any]:
        """Detections in one batch of letterboxed images; see `predict`.

        Where several processes train together, each may call it with images of its
        own, as often as it likes: no other process takes part.

        Args:
            x: float32 array `[B, H, W, 3]`, pixels 0-255.
            content_sizes: float32 array `[B, 2]`, height and width of each image inside
                the input, for a `postprocess` with `drop_empty`; None where it fills
                the input.

        Returns:
            Dict of arrays, as of `predict`.
        """
        if content_sizes is not None:
            found = self._evaluated({"images": x, "content_sizes": content_sizes})
            return found["detections"]
        return self._step.predict_on_batch(super().predict_on_batch, self, x)

    def batches(
        self,
        dataset: DetectionDataset,
        batch_size: int = _BATCH_SIZE,
        *,
        training: bool = False,
        **options: Any,
    ) -> Any:
        """Batches of a dataset in this model's image size, padding and labels.

        Labels follow the model's `class_names`, where it has them and they hold
        all of the dataset's: COCO's 80 classes train a model of 90 outputs.

        What `fit` makes of a `DetectionDataset`; call it to set more:
        `model.fit(model.batches(train, 16, training=True, scale_jitter=(0.8, 1.2)))`.

        Args:
            dataset: `effdet_keras.data.DetectionDataset`.
            batch_size: int.
            training: bool, whether to shuffle and augment.
            **options: of `DetectionDataset.batches`.

        Returns:
            `tf.data.Dataset`; see `DetectionDataset.batches`.
        """
        sizes = {
            "image_size": self.config.image_size,
            "pad_value": self.config.padding_rgb,
            "resize_method": self.config.resize_method,
            "masks": self.config.has_segmentation,
        }
        if training and (self.settings is None or self.settings.asked.is_open):
            sizes["scale_jitter"] = auto_recipe.scale_jitter(len(dataset))
        names = self.class_names
        # Where they do not, `inputs.check_data` says what is wrong.
        if names is not None and set(dataset.class_names) <= set(names):
            dataset = dataset.with_classes(names, self.category_ids)
        return dataset.batches(batch_size, training=training, **{**sizes, **options})

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """The detection losses and weight decay, from ground truth and outputs.

        NaN where the ground truth is wrong (`train/inputs.py`): the step then
        refuses the batch, as it does every loss that is not finite.

        Args:
            x: unused.
            y: dict with `boxes` `[B, M, 4]` (`yxyx`, pixels of the input) and
                `labels` `[B, M]` (-1 is padding); with `weights` `[B, M]`, of at least
                0, the losses of a box are multiplied by its weight, and a box of
                weight 0 is given no anchor of its own; for a segmentation head `masks`
                `[B, H, W]`, the class of each pixel, 255 where it has none. More keys
                are ignored.
            y_pred: outputs of the network, see `EfficientDet`.
            sample_weight: must be None.
            training: bool, whether it is a training step that asks.

        Returns:
            Float32 scalar.
        """
        inputs.check_truth(y, sample_weight, self.config)
        losses = self.losses_of(y, y_pred, training=training)
        self.settings.trackers.update_losses(losses)
        return self._step.checked_loss(losses["loss"], y, training)

    def losses_of(
        self,
        truth: dict,
        outputs: dict[str, Any],
        is_counted: Any = None,
        training: bool = False,
    ) -> dict[str, Any]:
        """The losses of outputs, by the names under which `fit` logs them.

        Args:
            truth: dict, see `compute_loss`.
            outputs: outputs of the network, see `EfficientDet`.
            is_counted: bools `[B]`; of the other images, without boxes, no loss is
                taken. None counts all.
            training: bool, whether a training step asks, which may be a part of an
                update.

        Returns:
            Dict of float32 scalars: `loss`, the sum, NaN where the ground truth is
            wrong; `class_loss`, `box_loss`, `reg_l2_loss`, and `box_iou_loss` and
            `segmentation_loss` where there is one.
        """
        terms = {"loss": 0.0}
        if self.config.has_detection:
            terms = self._detection_losses(truth, outputs, is_counted, training)
        if self.config.has_segmentation:
            of_images = segmentation_loss(
                truth["masks"], outputs["segmentation_logits"]
            )
            segmentation = _mean_of_counted(of_images, is_counted)
            loss = terms["loss"] + segmentation  # unweighted, as in the reference
            terms = {**terms, "loss": loss, "segmentation_loss": segmentation}
        if self.distillation is not None:
            terms = self._with_distillation(terms, truth, outputs)
        decay = self.settings.weight_decay_loss(self.trainable_variables)
        is_valid = is_valid_batch(truth, self.config)
        loss = ops.where(is_valid, terms["loss"] + decay, float("nan"))
        return {**terms, "reg_l2_loss": decay, "loss": loss}

    def _with_distillation(self, terms, truth, outputs):
        value = self.distillation.of_batch(truth, outputs)
        if value is None:  # validation has no teacher
            return terms
        loss = terms["loss"] + self.distillation.weight * value
        return {**terms, "loss": loss, DISTILLATION: value}

    def _detection_losses(self, truth, outputs, is_counted, training):
        """The terms of `DetectionLoss`, with their sum as `loss`."""
        recipe, boxes, labels = self.settings.recipe, truth["boxes"], truth["labels"]
        # Rules and losses of one's own need not know what is seldom there.
        weights = {"weights": truth["weights"]} if "weights" in truth else {}
        class_targets, box_targets, *anchor_weights = recipe.matching(
            boxes, labels, self.anchors, self.config, **weights
        )
        options = {"anchor_weights": anchor_weights[0]} if anchor_weights else {}
        if set(self.config.box_scales) != {1.0}:
            options["box_scales"] = self.config.box_scales
        if is_counted is not None:
            class_targets = ops.where(is_counted[:, None], class_targets, IGNORE)
        num_positives = count_positives(class_targets, box_targets, *anchor_weights)
        rule, accumulation = recipe.loss.normalizer_of, self.settings.accumulation
        if training and accumulation is not None:
            normalizer = accumulation.normalizer(num_positives, rule)
        else:
            normalizer = self._step.normalizer(num_positives, rule)
        # A loss of one's own need not know what only parts of a batch need.
        if normalizer is not None:
            options["normalizer"] = normalizer
        return recipe.loss(
            class_targets,
            box_targets,
            outputs["class_logits"],
            outputs["box_deltas"],
            self.anchors,
            **options,
        )

    def evaluate_and_detect_on_batch(
        self, images: Any, truth: dict, is_counted: Any, content_sizes: Any = None
    ) -> tuple[dict[str, Any], dict[str, float]]:
        """Detections and losses of a batch, from one forward pass.

        `COCOEvaluation(losses=True)` calls it.

        Args:
            images: float32 array `[B, H, W, 3]`, letterboxed pixels 0-255.
            truth: dict of arrays, see `compute_loss`.
            is_counted: bools `[B]`: False for images that only fill up the batch.
            content_sizes: as of `predict_on_batch`.

        Returns:
            `(detections, losses)`: what `predict_on_batch` returns, and a dict of
            floats with the names of `evaluate`.

        Raises:
            ValueError: If the ground truth is wrong.
            RuntimeError: If the model was never compiled.
            FloatingPointError: If the loss is NaN or infinite.
        """
        if self.settings is None:
            raise InvalidStateError(
                f"`{self.name}` was never compiled, so it has no losses. Call "
                "`model.compile()`, or evaluate without losses."
            )
        inputs.check_truth(truth, None, self.config)
        counted = np.asarray(is_counted, bool)
        arrays = {"images": images, **truth, "is_counted": counted}
        if content_sizes is not None:
            arrays["content_sizes"] = content_sizes
        outputs = self._evaluated(arrays)
        losses = {name: float(x[0]) for name, x in outputs["losses"].items()}
        if not math.isfinite(losses["loss"]):
            raise self.refusal(truth)
        return outputs["detections"], losses

    def _evaluated(self, arrays):
        """What the `EvaluationStep` of the model as it is now returns of a batch."""
        step = self._evaluation_step.step
        if step is None or not step.is_for(self):
            step = self._evaluation_step.step = EvaluationStep(self)
        return step.predict_on_batch(arrays)

    def refusal(self, truth: dict, *, step: int | None = None) -> Exception:
        """The error for a batch whose loss is not finite; see `Run.refusal`."""
        return self._run.refusal(truth, self.config, step)

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Sets all weights; training and its averages both start from them.

        Args:
            weights: list of arrays, as `get_weights` gives them.
        """
        super().set_weights(weights)
        self.weights_were_set()

    def _num_epochs(self, data, batch_size):
        """The number of epochs where none is given."""
        is_open = self.settings is not None and self.settings.asked.is_open
        if not (is_open and isinstance(data, DetectionDataset)):
            return 1
        return auto_recipe.num_epochs(len(data), batch_size or _BATCH_SIZE)

    def go_on_from(self, place: Mapping[str, Any]) -> None:
        """Makes the next `fit` go on from a place, with the weights as they are.

        Args:
            place: dict of `Place.to_dict`.
        """
        self._place = Place.from_dict(place)

    def _place_to_go_on_from(self, initial_epoch):
        """The place of the file, where the training that begins is the one of it."""
        place, self._place = self._place, None
        if place is None or self.settings is None or place.steps != self._steps_done:
            return None
        return place if initial_epoch in (None, place.epoch) else None

    @contextlib.contextmanager
    def _keeping_place(self, keeper) -> Iterator[None]:
        if keeper.must_skip:
            self.train_function = None
        self.place_keeper = keeper
        try:
            yield
        finally:
            self.place_keeper = None
            if keeper.must_skip:
                self.train_function = None

    def _fit_to_length(
        self,
        x,
        batch_size,
        steps_per_epoch,
        epochs,
        *,
        chosen_by_fit,
        verbose,
        steps_of_epoch=0,
    ):
        """Chooses and computes what depends on the data and on how long it trains."""
        settings = self.settings
        if not settings.recipe.needs_length:
            return
        batch_size, steps = inputs.batch_size_and_steps(x, batch_size, steps_per_epoch)
        self.choose_recipe(
            auto_recipe.Facts(
                num_images=inputs.num_images(x, batch_size, steps),
                batch_size=batch_size,
                steps=steps * epochs,
                pretrained=self.pretrained,
                chosen_by_fit=chosen_by_fit,
            ),
            verbose=verbose,
        )
        if self.settings.recipe.needs_length:
            total = self._steps_done - steps_of_epoch + epochs * steps
            self.optimizer.learning_rate = self.settings.recipe.resolve_schedule(
                batch_size=batch_size,
                steps_per_epoch=steps,
                epochs=max(total, 1) / steps,
            )
            self.train_function = None  # its trace holds the schedule of before

    def _batched(self, data, batch_size, training, seed=None, **options):
        """A `DetectionDataset` in batches for this model, else what was given."""
        inputs.check_batch_size(batch_size)
        if not isinstance(data, DetectionDataset):
            return data, batch_size
        size = batch_size or _BATCH_SIZE
        return self.batches(data, size, training=training, seed=seed, **options), None

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
    def _averages_afterwards(self) -> Iterator[None]:
        try:
            yield
        finally:
            if self.averages is not None:
                self.averages.swap_in()

    # Keras calls these; what differs from backend to backend is in `steps`.

    def train_step(self, *args: Any) -> Any:
        return self._step.train(super().train_step, *args)

    def test_step(self, *args: Any) -> Any:
        return self._step.test(super().test_step, *args)

    def predict_step(self, *args: Any) -> Any:
        return self._step.predict(super().predict_step, *args)

    def make_train_function(self, force: bool = False) -> None:
        is_new = force or self.train_function is None
        with self._step.making_function():
            super().make_train_function(force)
        if is_new:
            self.train_function = self._step.watched(self.train_function)
            if self.place_keeper is not None and self.place_keeper.must_skip:
                self.train_function = self._skipping(self.train_function)

    def make_test_function(self, force: bool = False) -> None:
        with self._step.making_function():
            super().make_test_function(force)

    def make_predict_function(self, force: bool = False) -> None:
        is_new = force or self.predict_function is None
        super().make_predict_function(force)
        if is_new:
            self.predict_function = self._step.predicting(self.predict_function)

    def _maybe_symbolic_build(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: `compile` has built all, and with several workers Keras' fails."""

    def _skipping(self, train_function):
        """The function that trains no step which is done already."""
        keeper = self.place_keeper

        def skipping(*arguments):
            if not keeper.is_skipping:
                return train_function(*arguments)
            if keeper.draws:
                for _ in range(self.steps_per_execution):
                    next(arguments[-1])
            return self._step.skipped(keeper.logs, *arguments)

        return skipping

    def compute_loss_and_updates(self, trainable_variables: list, *args, **kwargs):
        # Keras has it on JAX alone, where it differentiates it.
        values = self._step.scaling_gradients(trainable_variables)
        return super().compute_loss_and_updates(values, *args, **kwargs)

    @property
    def metrics(self):
        trackers = [] if self.settings is None else self.settings.trackers.metrics
        return [*super().metrics, *trackers]

    @property
    def metrics_variables(self):
        return [*super().metrics_variables, *self._step.carried_variables()]


def _mean_of_counted(of_images, is_counted):
    """The mean over the images of a batch that count."""
    if is_counted is None:
        return ops.mean(of_images)
    counted = ops.cast(is_counted, "float32")
    total = ops.sum(ops.where(is_counted, of_images, 0.0))
    return total / ops.maximum(ops.sum(counted), 1.0)


def _refuse_where_several(what):
    """Raises where each of several processes would compute the same, and wait."""
    if current_processes().count > 1:
        raise InvalidValueError(
            f"{what} does not share out its work among several processes, "
            "`COCOEvaluation(dataset, losses=True)` does: use that callback, or "
            "its `evaluate(model)`, for losses and AP."
        )


def _chosen_by_fit(data, **given):
    """Names of what `fit` chooses itself, because it makes the batches."""
    if not isinstance(data, DetectionDataset):
        return ()
    return ("scale_jitter", *(name for name, value in given.items() if value is None))


def _say_where(place, epochs, verbose):
    if place.epoch >= epochs:
        warnings.warn(
            f"The checkpoint is from the end of epoch {place.epoch}, and `epochs` is "
            f"{epochs}: there is nothing left to train. Give `epochs={place.epoch} + "
            "...`, or `initial_epoch=0` to count anew.",
            stacklevel=3,
        )
    elif verbose != 0:
        print(f"The training goes on after {place}.", flush=True)
