"""Methods of `EfficientDet` around a step: batches, losses, updates and metrics."""

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

from effdet_keras._internal.old_names import warn_of_old_name
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.default_jitter import scale_jitter
from effdet_keras.errors import InvalidStateError, require
from effdet_keras.images import SPARSE, check_pixels
from effdet_keras.labels import IGNORE
from effdet_keras.network.batch_norm import STATISTICS
from effdet_keras.train import auto_recipe
from effdet_keras.train.averages import weights_as_before
from effdet_keras.train.compile_config import check_precision_to_continue
from effdet_keras.train.fit_data import DEFAULT_BATCH_SIZE, in_batches
from effdet_keras.train.inputs import (
    ErrorContext,
    check_data,
    check_images_of_predict,
    check_lengths,
    check_truth,
    is_valid_batch,
    require_end,
    require_single_process,
    with_checked_pixels,
)
from effdet_keras.train.losses import count_positives, segmentation_loss
from effdet_keras.train.new_classes import loss_of_new_classes, old_classes_kept
from effdet_keras.train.optimizers import (
    decay_loss,
    steps_done,
    steps_per_update,
    unknown_variables,
)
from effdet_keras.train.resume import PositionTracker, TrainingPosition
from effdet_keras.train.steps import EvaluationStep
from effdet_keras.weights.archive import rename_position_fields


class ModelSteps:
    """Adds the methods that Keras and `train/steps` call around a step, as a mix-in."""

    # Knows the position of the current `fit`, for checkpoints.
    position_tracker: PositionTracker | None = None
    # The position of a loaded checkpoint, from which the next `fit` resumes.
    _resume_position: TrainingPosition | None = None
    _error_context = ErrorContext()  # of the current call

    # --- Data.

    def batches(
        self,
        dataset: DetectionDataset,
        batch_size: int = DEFAULT_BATCH_SIZE,
        *,
        training: bool = False,
        epochs: int = 1,
        steps_per_epoch: int | None = None,
        **options: Any,
    ) -> Any:
        """Returns `dataset.batches` in this model's image size, padding and labels.

        `fit` calls it for a `DetectionDataset`. Call it yourself to set more options:
        `model.fit(model.batches(train, 16, training=True, scale_jitter=(0.8, 1.2)))`.

        With `recipe="auto"`, scale jitter and mosaics for training are chosen from the
        number of images and the number of passes over the data.

        Labels follow the model's `class_names` if these include all classes of the
        dataset. So a dataset of COCO's 80 classes can train a model of 90 outputs.

        Args:
            dataset: `DetectionDataset`.
            batch_size: int, the number of images per batch.
            training: bool, whether to shuffle and augment for training.
            epochs: int, the epochs of the training, for the choice of augmentation.
            steps_per_epoch: int, the steps of an epoch, for the same choice. None is
                one pass over the data.
            **options: further arguments of `dataset.batches`. They override the values
                that come from the model.

        Returns:
            The batches that `DetectionDataset.batches` returns: a `tf.data.Dataset`,
            or a `keras.utils.PyDataset` if TensorFlow is not installed.

        Raises:
            ValueError: If a number is out of its range, or as
                `DetectionDataset.batches`.
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
        if training and (
            self.settings is None or self.settings.requested_recipe.has_auto_fields
        ):
            sizes["scale_jitter"] = scale_jitter(len(dataset))
            passes = auto_recipe.passes_over_data(
                len(dataset), batch_size, epochs=epochs, steps_per_epoch=steps_per_epoch
            )
            sizes["augment"] = auto_recipe.augmentation(
                len(dataset), batch_size, passes
            )
        names = self.class_names
        # If they do not match, `inputs.check_data` raises an error that explains it.
        if names is not None and set(dataset.class_names) <= set(names):
            dataset = dataset.with_classes(names, self.category_ids)
        return dataset.batches(batch_size, training=training, **{**sizes, **options})

    def resume_from(self, position: TrainingPosition) -> None:
        """Makes the next `fit` resume from a position."""
        self._resume_position = position

    def go_on_from(self, place: Mapping[str, Any]) -> None:
        """Calls `resume_from`: the former name, which took a dict of former names."""
        warn_of_old_name("go_on_from", "resume_from(TrainingPosition(...))")
        self.resume_from(TrainingPosition(**rename_position_fields(place)))

    def resume_training(
        self, path: Any, info: Mapping[str, Any], steps: int | None
    ) -> None:
        """Makes the next `fit` resume the training of a file.

        Args:
            path: path of the file, for messages.
            info: content of `archive.json`, or an empty dict.
            steps: int, the number of steps that the optimizer in the file had done.
                None if the file does not say.

        Raises:
            RuntimeError: If the state of the optimizer in the file does not fit the
                model's optimizer, or if the recipe has moving averages and the file has
                none. The progress of the training would be lost.
        """
        if self.settings is None:
            return
        done = steps_done(self.optimizer)
        if steps not in (None, done):
            raise InvalidStateError(
                f"'{path}' cannot be resumed here: its training did {steps} steps, but "
                "the state of its optimizer does not fit the optimizer of this model, "
                f"{type(self.optimizer).__name__} with the dtype policy "
                f"'{self.dtype_policy.name}'. The training would begin anew. To resume "
                "it, set the dtype policy of that training before you load the file, "
                "such as `keras.config.set_dtype_policy('mixed_float16')`. To begin a "
                "new training from its weights, load it without `resume` (`weights=` "
                "of a run), and write to another folder."
            )
        if self.averages is not None and self.averages not in self._loaded:
            raise InvalidStateError(
                f"'{path}' cannot be resumed: its training used moving averages of the "
                "weights, but the file does not contain them. Load it without "
                "`resume` to begin a new training from its weights."
            )
        if "training_position" in info:
            self.resume_from(TrainingPosition(**info["training_position"]))
        elif info.get("epoch"):  # written outside `fit`, at the end of an epoch
            epoch = int(info["epoch"])
            self.resume_from(TrainingPosition(epoch=epoch, total_steps=done))
        elif done:
            warnings.warn(
                f"'{path}' does not say in which epoch it was written: `fit` continues "
                f"with its optimizer, which has done {done} steps, but counts epochs "
                "from 0. Pass `initial_epoch=` to start from another epoch.",
                stacklevel=5,
            )

    def position_to_resume(self, initial_epoch: int | None) -> TrainingPosition | None:
        """Returns the checkpoint's position, if the new training continues from it.

        It is None if no checkpoint is to be resumed, or if `initial_epoch` is another
        epoch than the checkpoint's. It is also None, with a warning if `initial_epoch`
        is None, if the optimizer has not done the steps of the checkpoint. `fit`
        forgets the position when it begins to train, but keeps it when it rejects its
        data.
        """
        position = self._resume_position
        if position is None or self.settings is None:
            return None
        if position.total_steps != steps_done(self.optimizer):
            if initial_epoch is None:
                warnings.warn(
                    f"The training starts again at epoch 1 instead of at {position}, "
                    "where the checkpoint ended: the model was compiled, frozen or "
                    "trained after it was loaded, so its optimizer is no longer that "
                    "of the checkpoint. To resume, load the checkpoint again and call "
                    "`fit` right away, or pass `initial_epoch=`.",
                    stacklevel=4,
                )
            return None
        return position if initial_epoch in (None, position.epoch) else None

    # --- Keras' other calls; `fit` and `detect` are in `efficientdet.py`.

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Runs one training step, as `keras.Model.train_on_batch`.

        `fit` explains the two sets of weights. With moving averages, each call swaps
        weights and averages twice, so that many steps are faster with `fit`.
        """
        check_precision_to_continue(self)
        self.check_optimizer_knows_variables()
        with self._training_on(None):
            self._check_batch(args[0] if args else kwargs.get("x"))
            self.score_settings = None
            if self.averages is not None:
                self.averages.swap_out()
            return super().train_on_batch(*args, **kwargs)

    def test_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the losses of one batch, as `keras.Model.test_on_batch`."""
        with self._running_on(None):
            self._check_batch(args[0] if args else kwargs.get("x"))
            return super().test_on_batch(*args, **kwargs)

    def _check_batch(self, images):
        """Raises ValueError for an array of images that are not pixels 0-255."""
        if isinstance(images, np.ndarray):
            sparse = images[:, ::SPARSE, ::SPARSE]
            self._error_context.check_pixels(sparse, "a batch of images")

    def evaluate(
        self, x: Any = None, y: Any = None, batch_size: int | None = None, **kwargs: Any
    ) -> Any:
        """Returns the losses on labelled data, as `keras.Model.evaluate`.

        For AP and the other COCO metrics see `effdet_keras.callbacks.COCOEvaluation`.

        Args:
            x: a `DetectionDataset`, or other data that `fit` takes.
            y: dict of ground truth, if `x` is an array of images.
            batch_size: int, for arrays (default 32) and datasets (default 8).
            **kwargs: further arguments of `keras.Model.evaluate`.

        Raises:
            ValueError: If the data does not fit the model, as in `fit`, or if several
                processes run.
            FloatingPointError: If a loss is NaN or infinite.
        """
        if kwargs.get("_use_cached_eval_dataset"):  # `fit` calls, and has checked `x`
            with self._running_on(x):
                return super().evaluate(x, y, batch_size=batch_size, **kwargs)
        require_single_process("`evaluate`")
        check_lengths(batch_size=batch_size, **kwargs)
        is_dataset = isinstance(x, DetectionDataset)
        x, batch_size = in_batches(self, x, batch_size)
        check_data(self, x, y)
        require_end(x, "steps", kwargs.get("steps"))
        with self._running_on(x), weights_as_before(self.averages):
            if not is_dataset:
                x = with_checked_pixels(x, self._error_context)
            return super().evaluate(x, y, batch_size=batch_size, **kwargs)

    def predict(
        self, x: Any, batch_size: int | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Returns detections in letterboxed images, as padded arrays.

        It works as `keras.Model.predict`. For images of any size, and boxes in pixels
        of the original images, use `detect`.

        Args:
            x: a `DetectionDataset`, an array of images `[B, H, W, 3]` with pixels 0-255
                in the size of the model's input, or other data that
                `keras.Model.predict` takes.
            batch_size: int, for arrays (default 32) and datasets (default 8).
            **kwargs: further arguments of `keras.Model.predict`.

        Returns:
            Dict of arrays: `boxes` `[B, D, 4]` (`yxyx` in pixels of the input),
            `scores` `[B, D]`, `labels` `[B, D]` (-1 in unused rows), and
            `num_detections` `[B]`. A segmentation head adds `class_map` `[B, H, W]`,
            uint8.

        Raises:
            ValueError: If there are no images, if they are not pixels 0-255 or do not
                have the size of the model's input, or if several processes run.
            TypeError: If `x` is a path.
        """
        require_single_process("`predict`")
        check_lengths(batch_size=batch_size, **kwargs)
        is_dataset = isinstance(x, DetectionDataset)
        x, batch_size = in_batches(self, x, batch_size, masks=False)
        check_images_of_predict(self, x)
        require_end(x, "steps", kwargs.get("steps"))
        with self._running_on(x):
            if not is_dataset:
                x = with_checked_pixels(x, self._error_context)
            return super().predict(x, batch_size=batch_size, **kwargs)

    def predict_on_batch(self, x: Any, content_sizes: Any = None) -> dict[str, Any]:
        """Returns detections as `predict`, for one batch.

        Args:
            x: images `[B, H, W, 3]`, pixels 0-255.
            content_sizes: float32 array `[B, 2]`, the height and width of each image
                inside the letterboxed input, for a `postprocess` with `drop_empty`.
                None means that the images fill the input.
        """
        if isinstance(x, np.ndarray):
            check_pixels(x, "a batch of images", step=SPARSE)
        if content_sizes is not None:
            found = self._evaluated({"images": x, "content_sizes": content_sizes})
            return found["detections"]
        return self.predict_local_batch(super().predict_on_batch, self, x)

    # --- Losses.

    def compute_losses(
        self,
        ground_truth: dict,
        outputs: dict[str, Any],
        is_counted: Any = None,
        training: bool = False,
    ) -> dict[str, Any]:
        """Returns the losses of outputs, keyed by their names in the logs of `fit`.

        Args:
            ground_truth: dict, as `y` of `compute_loss`.
            outputs: dict of outputs of the network.
            is_counted: bool tensor `[B]` or None. Images that are not counted add
                nothing to the losses.
            training: bool, whether a training step calls it.

        Returns:
            Dict of float32 scalars. `loss` is the sum of all terms. It is NaN if the
            ground truth is wrong.
        """
        terms = {"loss": 0.0}
        if self.config.has_detection:
            terms = _detection_losses(self, ground_truth, outputs, is_counted, training)
        if self.config.has_segmentation:
            logits = outputs["segmentation_logits"]
            per_image = segmentation_loss(ground_truth["masks"], logits)
            segmentation = _mean_of_counted(per_image, is_counted)
            loss = terms["loss"] + segmentation  # unweighted, as in the reference
            terms = {**terms, "loss": loss, "segmentation_loss": segmentation}
        for name, auxiliary_loss in self.auxiliary_losses.items():
            value = auxiliary_loss(ground_truth, outputs)
            if value is not None:
                loss = terms["loss"] + auxiliary_loss.weight * value
                terms = {**terms, "loss": loss, name: value}
        decay = decay_loss(self.settings.recipe.l2_decay, self.trainable_variables)
        is_valid = is_valid_batch(ground_truth, self.config)
        loss = ops.where(is_valid, terms["loss"] + decay, float("nan"))
        return {**terms, "reg_l2_loss": decay, "loss": loss}

    def add_auxiliary_loss(self, name: str, loss: Any) -> None:
        """Adds a term to the loss, and logs it.

        Args:
            name: string, the name under which the term is logged.
            loss: callable that takes the ground truth of a batch and the network's
                outputs. It returns a float32 scalar, or None if there is nothing to
                compare. Its attribute `weight` is the factor of the term.
        """
        self.auxiliary_losses = {**self.auxiliary_losses, name: loss}
        if self.settings is not None:
            self.settings.loss_metrics.add((name,))
        self.forget_functions()

    def remove_auxiliary_loss(self, name: str) -> None:
        """Removes a term that `add_auxiliary_loss` added."""
        self.auxiliary_losses = {
            n: loss for n, loss in self.auxiliary_losses.items() if n != name
        }
        if self.settings is not None:
            self.settings.loss_metrics.remove((name,))
        self.forget_functions()

    def add_step_observer(self, observer: Any) -> None:
        """Calls an observer in each training step. It does not change the step.

        Args:
            observer: callable that takes the batch, the gradients before clipping, and
                the loss scale by which they are multiplied. It stores its results in
                its `variables`.
        """
        self.step_observers = (*self.step_observers, observer)
        self.forget_functions()

    def remove_step_observer(self, observer: Any) -> None:
        """Removes an observer that `add_step_observer` added."""
        rest = [other for other in self.step_observers if other is not observer]
        self.step_observers = tuple(rest)
        self.forget_functions()

    def observe_step(self, data: Any, gradients: list, loss_scale: Any) -> None:
        """Calls all observers with the batch, gradients and loss scale of a step."""
        for observer in self.step_observers:
            observer(data, gradients, loss_scale)

    def forget_functions(self) -> None:
        """Makes Keras rebuild the functions of `fit`, `evaluate` and `predict`."""
        self.train_function = self.test_function = self.predict_function = None

    # --- The update of a training step, and its logs.

    def apply_update(
        self, gradients: list, new_values: Sequence[tuple], step: Any
    ) -> None:
        """Updates weights, statistics and averages with a batch that is finite.

        Args:
            gradients: list of the clipped gradients of `optimized_variables()`.
            new_values: pairs of a variable and the value that the forward pass assigned
                to it, such as batch-norm statistics.
            step: int scalar, the 0-based training step.
        """
        with old_classes_kept(self):
            self._apply_gradients(gradients, self.optimized_variables())
        for variable, value in new_values:
            variable.assign(value)
        if self.averages is not None:
            count = steps_per_update(self.optimizer)
            is_update = None if count == 1 else (step + 1) % count == 0
            self.averages.update(step // count, is_update, new_values)

    @property
    def has_dynamic_loss_scale(self) -> bool:
        """Whether the loss is scaled against underflow in float16."""
        return hasattr(self.optimizer, "dynamic_scale")

    def reduce_loss_scale(self, when: Any = True) -> None:
        """Halves the loss scale, as Keras does when gradients overflow.

        `when` is a bool or a bool scalar tensor; if it is False, nothing changes.
        """
        optimizer, halved = self.optimizer, self.optimizer.dynamic_scale * 0.5
        for variable, value in (
            (optimizer.dynamic_scale, halved),
            (optimizer.step_counter, ops.zeros_like(optimizer.step_counter)),
        ):
            variable.assign(ops.where(when, value, ops.convert_to_tensor(variable)))

    def update_metrics(
        self, loss: Any, gradient_norm: Any = None, learning_rate: Any = None
    ) -> dict[str, Any]:
        """Returns the logs of a step.

        `gradient_norm` and `learning_rate` are those of a training step. For a test
        step they are None, and the logs are those of validation.
        """
        self._loss_tracker.update_state(loss)
        if gradient_norm is None:
            return self.settings.loss_metrics.validation_logs(self.get_metrics_result())
        values = {"gradient_norm": gradient_norm, "learning_rate": learning_rate}
        self.settings.loss_metrics.update(values)
        return self.get_metrics_result()

    def check_loss(self, loss: Any, data: Any, *, is_training: bool) -> None:
        """Raises an error if the loss is not finite. The batch changed no weights.

        Args:
            loss: the loss that the step logged.
            data: the batch. None if Keras ran several batches in one call, so that it
                is not known which of them has the loss.
            is_training: bool, whether it was a training step.

        Raises:
            ValueError: If the ground truth of the batch is wrong.
            FloatingPointError: If the loss is not finite for another reason.
        """
        if np.all(np.isfinite(ops.convert_to_numpy(loss))):
            return
        step = steps_done(self.optimizer) + 1 if is_training else None
        ground_truth = None
        if data is not None:
            _, ground_truth, _ = keras.utils.unpack_x_y_sample_weight(data)
        raise self.refusal(ground_truth, step=step)

    # --- The variables of a training step.

    def optimized_variables(self) -> list[keras.Variable]:
        """Returns the variables that the optimizer updates.

        They are the trainable variables of the model and, with `adversarial` (AdvProp),
        those of the second batch norms.
        """
        own = self.trainable_variables
        return own if self.adversarial is None else own + self.adversarial.trainable

    def check_optimizer_knows_variables(self) -> None:
        """Raises `InvalidStateError` for variables made trainable after `compile`."""
        if self.settings is None:
            return  # Keras' own error says that the model is not compiled
        unknown = unknown_variables(self.optimizer, self.optimized_variables())
        rule = (
            "Variables are trainable now that were not when the model was compiled, so "
            "the optimizer does not know them. Call `compile` again after you change "
            "`trainable`, with a new optimizer"
        )
        paths = [variable.path for variable in unknown]
        received = {"variables": len(paths), "first": paths[:1]}
        require(not unknown, rule, InvalidStateError, **received)

    def step_variables(self) -> list[keras.Variable]:
        """Returns the variables that a forward pass or a loss may assign.

        Batch-norm statistics are an example.
        """
        # Not `metrics_variables`: on JAX that includes `variables_beside_keras`.
        of_metrics = [v for metric in self.metrics for v in metric.variables]
        found = [*self.non_trainable_variables, *of_metrics]
        for owner in (self.quantization, self.moving_normalizer):
            found += [] if owner is None else owner.variables
        if self.adversarial is not None:
            found += self.adversarial.statistics
        return found

    def variables_beside_keras(self) -> list[keras.Variable]:
        """Returns the variables that a step changes and that Keras does not track."""
        owners = [self.averages, self.moving_normalizer, *self.step_observers]
        return [v for owner in owners if owner is not None for v in owner.variables]

    def assigned_values(self, scope: keras.StatelessScope) -> list[tuple]:
        """Returns pairs of a variable and the value that a scope has for it.

        The variables are those of `step_variables` that were assigned in the scope, or
        that the scope maps to values.
        """
        pairs = [(v, scope.get_current_value(v)) for v in self.step_variables()]
        return [(v, value) for v, value in pairs if value is not None]

    def batch_norm_statistics(self) -> list[keras.Variable]:
        """Returns the moving means and variances of all batch norms."""
        return [v for v in self.non_trainable_variables if v.name in STATISTICS]

    @property
    def metrics(self):
        trackers = [] if self.settings is None else self.settings.loss_metrics.metrics
        return [*super().metrics, *trackers]

    # --- The context in which Keras' functions run.

    def skip_steps_before_position(self) -> None:
        """Skips the steps that were done before, if `fit` resumes within an epoch."""
        tracker = self.position_tracker
        if tracker is not None and tracker.resumes_within_epoch:
            self.train_function = tracker.wrap_train_function(
                self.train_function, self.skip_step
            )

    def _maybe_symbolic_build(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: `compile` built everything.

        Keras' method fails with several workers.
        """

    @contextlib.contextmanager
    def _running_on(self, data) -> Iterator[None]:
        """Sets the `ErrorContext` during `fit`, `evaluate` and `predict`."""
        outer, self._error_context = self._error_context, ErrorContext(data)
        try:
            with self._error_context.plain_errors():
                yield
        finally:
            self._error_context = outer

    @contextlib.contextmanager
    def _training_on(self, data, tracker=None, dataset=None) -> Iterator[None]:
        """Sets the `ErrorContext` and `position_tracker` during training.

        At the end, also after an error, the averages become the model's weights.
        """
        outer, self.position_tracker = self.position_tracker, tracker
        self.training_dataset = dataset
        skips = tracker is not None and tracker.resumes_within_epoch
        with self._running_on(data):
            self._error_context.trains = True
            try:
                if skips:
                    # Rebuilt by `make_train_function`, which asks the tracker.
                    self.train_function = None
                yield
            finally:
                self.position_tracker = outer
                self.training_dataset = None
                if skips:
                    self.train_function = None
                if self.averages is not None:
                    self.averages.swap_in()

    def evaluate_and_detect_on_batch(
        self, images: Any, truth: dict, is_counted: Any, content_sizes: Any = None
    ) -> tuple[dict[str, Any], dict[str, float]]:
        """Returns detections and losses of a batch, for `COCOEvaluation(losses=True)`.

        Args:
            images: pixels 0-255, `[B, H, W, 3]`.
            truth: dict of ground truth, as `y` of `compute_loss`.
            is_counted: bool array `[B]`, False for images that only fill up the batch.
            content_sizes: see `predict_on_batch`.

        Raises:
            RuntimeError: If the model was never compiled.
            ValueError: If images or ground truth are wrong.
            FloatingPointError: If the loss is not finite.
        """
        rule = (
            "A model that was never compiled cannot compute losses: call "
            "`model.compile()` first"
        )
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
        """Holds the `EvaluationStep` in a namespace that Keras does not track."""
        return types.SimpleNamespace(step=None)

    def _evaluated(self, arrays):
        """Returns the outputs of the `EvaluationStep` of the current model."""
        kept = self._evaluation_step
        if kept.step is None or not kept.step.is_for(self):
            kept.step = EvaluationStep(self)
        return kept.step.predict_on_batch(arrays)

    def refusal(self, truth: dict | None, *, step: int | None = None) -> Exception:
        """Returns the error of `ErrorContext` for a batch whose loss is not finite."""
        return self._error_context.refusal(truth, self.config, step)


def _detection_losses(model, truth, outputs, is_counted, training):
    """Returns the terms of `DetectionLoss`, with their sum as `loss`."""
    recipe, boxes, labels = model.settings.recipe, truth["boxes"], truth["labels"]
    # Optional arguments are passed only if they are needed. So a custom matching or
    # loss need not accept them.
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
    normalizer = model.loss_normalizer(num_positives, recipe.loss.normalizer_of)
    if training and model.moving_normalizer is not None:
        if normalizer is None:
            normalizer = recipe.loss.normalizer_of(num_positives)
        normalizer = model.moving_normalizer(normalizer)
    if normalizer is not None:  # a custom loss need not accept it
        options["normalizer"] = normalizer
    return loss_of_new_classes(model, recipe.loss)(
        class_targets,
        box_targets,
        outputs["class_logits"],
        outputs["box_deltas"],
        model.anchors,
        **options,
    )


def _mean_of_counted(per_image, is_counted):
    """Returns the mean over the counted images of a batch."""
    if is_counted is None:
        return ops.mean(per_image)
    counted = ops.cast(is_counted, "float32")
    total = ops.sum(ops.where(is_counted, per_image, 0.0))
    return total / ops.maximum(ops.sum(counted), 1.0)
