"""`EfficientDet`, the `keras.Model`: compile, fit, losses, detect.

One step of `fit`, in the order of its calls (docs/training_step.md follows an image
through it):

    the train function       train/functions/<backend>.py
        `train_step`         train/steps/<backend>.py
            `compute_loss`   here: checks the ground truth, updates the loss metrics
                `compute_losses`     model/steps.py: all terms of the loss
                    `Matching`       train/matching.py: which anchor learns what
                    `DetectionLoss`  train/losses.py: classes and boxes
            `apply_update`   model/steps.py: optimizer, batch-norm statistics, averages
        `check_loss`         model/steps.py: raises an error if the loss is NaN
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from effdet_keras._internal.backend import default_jit_compile
from effdet_keras._internal.number_ranges import NumberRange
from effdet_keras.data.dataset import DetectionDataset, checked_class_names
from effdet_keras.detect.detect import ScoreThreshold, detect
from effdet_keras.detect.detections import Detections
from effdet_keras.detect.postprocess import Postprocess, postprocess_outputs
from effdet_keras.errors import (
    InvalidTypeError,
    check_argument,
    check_choice,
    require,
)
from effdet_keras.evaluate.thresholds import ScoreSettings
from effdet_keras.hub.module import HubFeatures  # noqa: F401 (for saved models)
from effdet_keras.model.export import ModelExports
from effdet_keras.model.files import ModelFiles
from effdet_keras.model.steps import ModelSteps
from effdet_keras.model.weights import ModelWeights
from effdet_keras.network.anchors import anchors_of
from effdet_keras.network.build import (
    build_network,
    check_data_format,
    check_precision,
)
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.train import freezing, inputs
from effdet_keras.train.averages import WeightAverages
from effdet_keras.train.compile_config import check_precision_to_continue
from effdet_keras.train.compile_model import Settings, compile_model
from effdet_keras.train.fit_callbacks import (
    assemble_callbacks,
    close_after_fit,
    new_position_tracker,
)
from effdet_keras.train.fit_data import prepare_training_data, repeat_for_steps
from effdet_keras.train.functions import BackendFunctions
from effdet_keras.train.recipe import Recipe
from effdet_keras.train.resolve_recipe import resolve_recipe, unfreeze_what_fit_froze
from effdet_keras.train.resume import print_resume_message
from effdet_keras.train.steps import BackendSteps
from effdet_keras.weights.assign import LoadedClasses

# Saved models hold a `Postprocess`. It is registered here because its own file, which
# `Predictor` uses, does not import Keras.
keras.saving.register_keras_serializable(package="effdet_keras")(Postprocess)


@keras.saving.register_keras_serializable(package="effdet_keras")
class EfficientDet(
    ModelWeights,
    ModelExports,
    ModelFiles,
    ModelSteps,
    BackendSteps,
    BackendFunctions,
    keras.Model,
):
    """EfficientDet (https://arxiv.org/abs/1911.09070) as a Keras model.

    The input is RGB images with pixel values 0-255. The model normalizes them itself.

    The class is assembled from mix-ins in several files:

    | file | what it adds | public methods |
    |---|---|---|
    | `model/efficientdet.py` | training and detection | `compile`, `fit`, `detect` |
    | `train/steps/<backend>.py` | one step | `train_step`, `test_step` |
    | `train/functions/<backend>.py` | how Keras runs a step | `make_train_function` |
    | `train/training_defaults.py` | base class of both: defaults for one device | |
    | `model/steps.py` | losses, update, batches | `batches`, `evaluate`, `predict` |
    | `model/weights.py` | weights of all kinds | `from_preset`, `load_pretrained` |
    | `model/files.py` | Keras' own file formats | `save`, `load_weights` |
    | `model/export.py` | other runtimes | `freeze`, `quantize_aware`, `export` |

    Args:
        config: `EfficientDetConfig`, or its `to_dict()`. None gives D0.
        class_names: sequence of strings, one per label, or None. If it is None, `fit`
            takes the names of the dataset.
        category_ids: sequence of ints, the id of each label in the annotation files,
            or None. If it is None, label `i` has the id `i + 1` until `fit` takes the
            ids of the dataset.
        postprocess: `Postprocess`, which sets how `predict` and `detect` select boxes.
        dtype: dtype policy, such as "mixed_bfloat16". None gives Keras' global policy.
        features: Keras layer that replaces the network up to the last layer of each
            head, as in a model of `from_hub`. None gives EfficientDet's network.
        score_settings: `ScoreSettings` from an evaluation of these weights, or its
            `to_dict()`. Training and loading weights reset it to None.
        seg_class_names: sequence of strings, one per pixel class of the segmentation
            head, or None.
        quantization: dict of arguments of `quantize_aware`, or None.
        name, trainable: arguments of `keras.Model`. The name is the config's by
            default.

    Call arguments:
        images: uint8 or float tensor `[B, H, W, 3]` of pixels 0-255, where `(H, W)` is
            `config.image_size`.
        training: bool, whether the call is part of a training step.

    Returns:
        Dict of raw float32 outputs: `class_logits` `[B, N, C]` and `box_deltas`
        `[B, N, 4]`, where the `N` rows are those of `model.anchors`. A segmentation
        head adds `segmentation_logits` `[B, h, w, K]`. For detections see `predict`.

    Raises:
        ValueError: If there is not one name or id for each of `config.num_classes`
            classes, if one repeats, or if images do not have the size of the model's
            input.
        TypeError: If `class_names` or `seg_class_names` is not a sequence of names, or
            `postprocess` is no `Postprocess`.

    Example:
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2
        ... )
        >>> outputs = model(np.zeros((1, 64, 64, 3), "uint8"))
        >>> tuple(outputs["class_logits"].shape), model.anchors.shape
        ((1, 765, 2), (765, 4))
    """

    averages: WeightAverages | None = None
    quantization: Any = None  # of `quantize_aware`: fake quantization to int8
    adversarial: Any = None  # of `compile(adversarial=...)`: AdvProp
    moving_normalizer: Any = None  # of `DetectionLoss(positives_momentum=...)`
    # Additional terms of the loss, keyed by the names under which they are logged.
    auxiliary_losses: Mapping[str, Any] = types.MappingProxyType({})
    step_observers: tuple[Any, ...] = ()  # of `add_step_observer`
    # Which weights were loaded: "backbone", "detector", or "detector of other classes"
    # (then the class outputs are new). None means that all weights are new.
    pretrained: str | None = None
    # The classes of the detector whose weights were loaded as a whole.
    loaded_classes: LoadedClasses | None = None
    frozen_labels: tuple[int, ...] = ()  # their outputs do not train; see `freeze`
    # Thresholds and temperature for `detect`; None if an evaluation has not set them.
    score_settings: ScoreSettings | None = None
    settings: Settings | None = None  # set by `compile`
    weights_match_recipe = False  # whether the weights were trained with `settings`
    # The dtype policy of the training in a loaded file, whose optimizer the model has.
    policy_to_continue: str | None = None
    training_dataset: DetectionDataset | None = None  # of the current `fit`

    def __init__(
        self,
        config: EfficientDetConfig | Mapping[str, Any] | None = None,
        class_names: Sequence[str] | None = None,
        category_ids: Sequence[int] | None = None,
        postprocess: Postprocess | None = None,
        dtype: str | keras.DTypePolicy | None = None,
        features: keras.layers.Layer | None = None,
        score_settings: ScoreSettings | Mapping[str, Any] | None = None,
        seg_class_names: Sequence[str] | None = None,
        quantization: Mapping[str, Any] | None = None,
        name: str | None = None,
        trainable: bool | None = None,
    ) -> None:
        if not isinstance(config, EfficientDetConfig):
            config = EfficientDetConfig(**(config or {}))
        class_names = _one_per_class("class_names", class_names, config.num_classes)
        category_ids = _checked_category_ids(category_ids, config.num_classes)
        seg_class_names = _one_per_class(
            "seg_class_names", seg_class_names, config.seg_num_classes
        )
        check_data_format()
        check_precision(dtype)
        images, outputs = build_network(config, dtype, features)
        super().__init__(images, outputs, name=name or config.name, trainable=trainable)
        if dtype is not None:
            self.dtype_policy = dtype  # tells `compile` to scale a float16 loss
        self.config = config
        self.class_names = class_names
        self.category_ids = category_ids
        self.seg_class_names = seg_class_names
        self.postprocess = postprocess or Postprocess()
        self.features = features
        if isinstance(score_settings, Mapping):
            score_settings = ScoreSettings.from_dict(score_settings)
            _one_per_class("thresholds", score_settings.thresholds, config.num_classes)
        self.score_settings = score_settings
        self._network_dtype = dtype
        self.anchors = anchors_of(config)
        # Keras' own "auto" is XLA, also on CPUs, where it is many times slower.
        self.jit_compile = default_jit_compile()
        if quantization is not None:
            self.quantize_aware(**quantization)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        check_data_format()
        run = functools.partial(super().call, inputs, training=training, mask=mask)
        if self.quantization is not None:  # fake quantization between the layers
            return self.quantization.call(run, bool(training))
        return run()

    @property
    def num_classes(self) -> int:
        """Number of labels."""
        return self.config.num_classes

    @property
    def postprocess(self) -> Postprocess:
        """How `predict` and `detect` select boxes. A new value is used at once."""
        return self._postprocess

    @postprocess.setter
    def postprocess(self, postprocess: Postprocess) -> None:
        require(
            isinstance(postprocess, Postprocess),
            "`postprocess` must be an `ek.Postprocess`, such as "
            "`ek.Postprocess(max_detections=50)`",
            InvalidTypeError,
            postprocess=postprocess,
        )
        self._postprocess = postprocess
        self.predict_function = None  # it was traced with the previous `Postprocess`

    # --- Configuration of the training.

    def compile(
        self,
        optimizer: str | dict | keras.optimizers.Optimizer | None = None,
        loss: Any = None,
        *,
        recipe: str | Recipe = "auto",
        jit_compile: bool | str = "auto",
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        auto_scale_loss: bool = True,
        **changes: Any,
    ) -> None:
        """Sets how to train. Without arguments, `fit` chooses values for the data.

        With `recipe="auto"`, `fit` chooses every argument that you omit, and prints
        its choices and the reasons (docs/fine_tuning.md). For 100,000 steps or more it
        chooses `recipe="reference"`: SGD with momentum, a warm-up and a cosine decay to
        zero, L2 decay, gradient clipping, and moving averages (see `Recipe`).

        Until `fit` has chosen, `train_on_batch`, `evaluate` and saved files use the
        reference recipe. Its learning rate is then constant, because the length of the
        training is not known. A rate that scales with the batch size is that of a batch
        of one image.

        Each `compile` creates a new optimizer and new moving averages. Both start from
        the current weights of the model. After a `fit` with averages, these are the
        averages, not the raw weights that the optimizer trained.

        Args:
            optimizer, loss, **changes: fields of `Recipe`, such as `ema_decay=0.99`.
                They override the fields of `recipe`.
            recipe: "auto"; "reference" for the recipe of google/automl; "tfod" for the
                recipe of the TF Object Detection API's configs; or a `Recipe`.
            jit_compile: bool, or "auto" to use XLA only where it is faster. On CPUs it
                is not.
            run_eagerly, steps_per_execution, auto_scale_loss: see
                `keras.Model.compile`.

        Raises:
            ValueError, TypeError: If an argument is wrong, or arguments contradict each
                other.

        Example:
            >>> from effdet_keras.model.efficientdet import EfficientDet
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2)
            >>> model.compile("adamw", learning_rate=1e-3, ema_decay=None)
            >>> model.compile(recipe=Recipe("reference", clip_norm=5.0))
            >>> model.compile(clip=5.0)
            Traceback (most recent call last):
                ...
            effdet_keras.errors.InvalidTypeError: `compile` has no argument 'clip'. ...
        """
        inputs.check_lengths(steps_per_execution=steps_per_execution)
        given = {"optimizer": optimizer, "loss": loss}
        changes |= {name: value for name, value in given.items() if value is not None}
        requested = Recipe.of(recipe, changes)
        check_choice("jit_compile", jit_compile, (True, False, "auto"))
        keras_options = {
            "jit_compile": jit_compile,
            "run_eagerly": run_eagerly,
            "steps_per_execution": steps_per_execution,
            "auto_scale_loss": auto_scale_loss,
        }
        with freezing.unchanged_by_errors(self):
            if requested.freeze == "auto":
                unfreeze_what_fit_froze(self)
            elif requested.freeze is not None:
                freezing.freeze(self, requested.freeze, requested.freeze_batch_norm)
            # `fit` resolves "auto" fields again, see `train/resolve_recipe.py`.
            compile_model(self, requested, requested.resolve(), keras_options)
        self.weights_match_recipe = False
        self.policy_to_continue = None

    # --- Training.

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
        validation_split: float = 0.0,
        shuffle: bool | str | None = None,
        initial_epoch: int | None = None,
        steps_per_epoch: int | None = None,
        **kwargs: Any,
    ) -> keras.callbacks.History:
        """Trains the model on a `DetectionDataset`, or on any data that Keras takes.

        It takes all arguments of `keras.Model.fit`.

        With moving averages (`ema_decay`) there are two sets of weights. The steps of
        an epoch train the raw weights, and also update the averages. When the steps of
        the epoch are done, the averages become the model's weights:

        - Validation, `COCOEvaluation` and the `on_epoch_end` of all callbacks see the
          averages. In the logs, `loss` is that of the raw weights, and `val_loss` that
          of the averages.
        - Files (`save`, `save_weights`, `CheckpointArchive`, `ModelCheckpoint`) hold
          the averages as the model's weights. They also hold the raw weights, from
          which training is resumed.
        - After training, `detect`, `predict`, `evaluate` and exports see the averages.
        - The next `fit` resumes from the raw weights. They are bit for bit unchanged by
          the averages, also after an error or Ctrl-C.

        With `ema_decay=None` there is one set of weights, which all of these see. A
        model without `category_ids` or `class_names` takes those of the dataset.

        Args:
            x: batches of `(images, {"boxes", "labels"})` in any form that Keras takes,
                or a `DetectionDataset`. `fit` batches a `DetectionDataset` in this
                model's `image_size`, with augmentation.
            y: dict of ground truth, if `x` is an array of images.
            batch_size: int, for arrays (default 32) and datasets (default 8).
            epochs: int. None is 1, but with `recipe="auto"` and a small
                `DetectionDataset` it is enough epochs for 1,400 steps.
            verbose: "auto" for one line per epoch with loss, AP and the best AP so far;
                1 for Keras' progress bar with all numbers; 2 for Keras' line per epoch;
                0 for no output.
            callbacks: list of `keras.callbacks.Callback`.
            validation_data: the same types as `x`, or `(images, ground truth)`.
            validation_split: float in [0, 1), the fraction of arrays, taken from their
                end, that is used for validation.
            shuffle: bool or "batch", as in `keras.Model.fit`, for arrays and
                `keras.utils.PyDataset`. None is True for these.
            initial_epoch: int, the number of epochs that were trained before. None is
                0, but for a model of `from_archive(..., resume=True)` it is the epoch
                of the checkpoint.
            steps_per_epoch: int. The data is repeated, and an epoch begins where the
                one before it stopped. None is one pass over the data.
            **kwargs: further arguments of `keras.Model.fit`.

        Returns:
            `keras.callbacks.History`.

        Raises:
            ValueError: If the data is empty or has no box; if a number is out of its
                range; if the data is not in batches; if its image size or classes
                differ from the model's; or if the ground truth of a batch is wrong.
            RuntimeError: If the model was loaded with another dtype policy than that of
                its training, or if variables are trainable that were not when the model
                was compiled.
            FloatingPointError: If a loss is NaN or infinite. The message names
                the step and the images. That batch did not change the weights.
        """
        check_precision_to_continue(self)
        inputs.check_lengths(
            batch_size=batch_size,
            epochs=epochs,
            initial_epoch=initial_epoch,
            steps_per_epoch=steps_per_epoch,
            validation_split=validation_split,
            **kwargs,
        )
        data = prepare_training_data(
            self,
            x,
            y,
            batch_size=batch_size,
            epochs=epochs,
            validation_data=validation_data,
            validation_split=validation_split,
            shuffle=shuffle,
            initial_epoch=initial_epoch,
            steps_per_epoch=steps_per_epoch,
            validation_steps=kwargs.get("validation_steps"),
        )
        if data.position is not None:
            print_resume_message(data.position, data.epochs, verbose)
        inputs.warn_if_nothing_is_left(data.epochs, data.initial_epoch, data.position)
        if verbose != 0:
            inputs.print_training_hints(self, data.dataset)
        # Compiles again, with the values chosen for the "auto" fields.
        resolve_recipe(self, data, verbose=verbose != 0)
        self.check_optimizer_knows_variables()
        data = repeat_for_steps(data)  # Keras ends a training where the data ends
        tracker = new_position_tracker(self, data)
        callbacks = assemble_callbacks(
            self, callbacks, tracker, log_epochs=verbose == "auto"
        )
        self._resume_position = None  # the next `fit` does not resume
        self.score_settings = None  # they were chosen for the weights before this `fit`
        validation_context = inputs.ErrorContext()
        # At the end, also after an error, the averages become the model's weights.
        with (
            self._training_on(data.x, tracker, data.dataset),
            validation_context.plain_errors(),
            close_after_fit(callbacks),
        ):
            batches = data.x
            if data.dataset is None:  # the user's own batches or arrays
                batches = inputs.with_checked_pixels(batches, self._error_context)
            validation_batches = data.validation_data
            if not isinstance(validation_data, DetectionDataset):
                validation_batches = inputs.with_checked_validation_pixels(
                    validation_batches, validation_context
                )
            return super().fit(
                self.distribute_fit_data(batches),
                data.y,
                batch_size=data.batch_size,
                epochs=data.epochs,
                verbose=0 if verbose == "auto" else verbose,
                callbacks=callbacks,
                validation_data=validation_batches,
                shuffle=data.shuffle,
                initial_epoch=data.initial_epoch,
                steps_per_epoch=data.steps_per_epoch,
                **kwargs,
            )

    # --- The loss. `train_step` is in the file of the current backend in `train/steps`.

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        """Returns the sum of all losses and the L2 decay, and updates the metrics.

        The loss is NaN if the ground truth is wrong. The step then rejects the batch.

        Args:
            x: unused.
            y: dict of ground truth. `boxes` `[B, M, 4]` are `yxyx` in pixels of the
                input, and `labels` `[B, M]` are ints (-1 is padding). `weights`
                `[B, M]`, each at least 0, are optional: the losses of a box are
                multiplied by its weight, and a box of weight 0 is not force-matched.
                A segmentation head needs `masks` `[B, H, W]`, the class of each pixel,
                which is 255 for pixels without a class.
            y_pred: outputs of the network, see `EfficientDet`.
            sample_weight: must be None.
            training: bool, whether a training step calls it.

        Returns:
            Float32 scalar.

        Raises:
            ValueError: If `y` lacks what the heads need, has the format of another
                library, or if `sample_weight` is not None.
        """
        inputs.check_truth(y, sample_weight, self.config)
        # Matching, `DetectionLoss`, L2 decay and more; NaN if `y` has invalid values.
        losses = self.compute_losses(y, y_pred, training=training)
        self.settings.loss_metrics.update(losses)
        return losses["loss"]

    # --- Detection.

    def detect_outputs(
        self, outputs: dict[str, Any], content_sizes: Any = None
    ) -> dict[str, Any]:
        """Converts network outputs to detections, in pixels of the input.

        For the arrays see `predict`, for `content_sizes` see `predict_on_batch`.
        """
        return postprocess_outputs(
            outputs, self.postprocess, self.anchors, self.config, content_sizes
        )

    def detect_step(self, images: Any) -> dict[str, Any]:
        """Runs the network and the postprocessing; `predict` compiles this method."""
        return self.detect_outputs(self(images, training=False))

    def detect(
        self,
        images: Any,
        score_threshold: ScoreThreshold = 0.3,
        *,
        batch_size: int = 8,
        verbose: int | str = "auto",
        calibrated: bool = False,
        classes: Sequence[str | int] | None = None,
    ) -> Detections | list[Detections]:
        """Finds objects in images of any size.

        Images are letterboxed into the network's input, as in evaluation. Boxes are
        returned in pixels of the original image.

        Args:
            images: path of an image or of a folder of images; array `[H, W, 3]`,
                `[H, W]` or `[H, W, 4]` of pixels 0-255; a list of image paths and such
                arrays; or an array `[B, H, W, 3]`.
            score_threshold: float, the lowest score to keep; or "best", which takes the
                threshold of each class from `score_settings`.
            batch_size: int, the number of images per batch.
            verbose: 1 shows a progress bar, 0 none; "auto" shows one if there is more
                than one batch.
            calibrated: bool, whether scores are scaled by the temperature of
                `score_settings`. Calibrated scores are closer to the fraction of
                detections that are correct. A number in `score_threshold` is compared
                with calibrated scores.
            classes: names or labels of the classes to keep. None keeps all.

        Returns:
            `Detections` for one image, otherwise a list of them.

        Raises:
            FileNotFoundError: If an image or folder does not exist.
            ValueError, TypeError: If something is not an image, or a class is unknown.
            RuntimeError: If thresholds or a temperature are requested that the model
                does not have.

        Example:
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", image_size=64, max_level=6, class_names=["cat"]
            ... )
            >>> image = np.full((48, 100, 3), 127, "uint8")
            >>> len(model.detect(image, score_threshold=0.9))
            0
        """
        return detect(
            self,
            images,
            score_threshold=score_threshold,
            batch_size=batch_size,
            verbose=verbose,
            calibrated=calibrated,
            classes=classes,
        )


def _one_per_class(field, values, num_classes):
    if values is None:
        return None
    is_names = field.endswith("class_names")
    values = checked_class_names(values, f"`{field}`") if is_names else tuple(values)
    rule = f"`{field}` must have one entry for each of the {num_classes} classes"
    entries = {"entries": len(values), field: values[:5]}
    require(len(values) == num_classes, rule, **entries)
    return values


def _checked_category_ids(category_ids, num_classes):
    category_ids = _one_per_class("category_ids", category_ids, num_classes)
    if category_ids is None:
        return None
    is_whole = NumberRange("(-inf, inf)", whole=True).contains
    are_ids = all(map(is_whole, category_ids))
    is_one_each = len(set(category_ids)) == len(category_ids)
    expected = "whole numbers, a different one for each class"
    check_argument(are_ids and is_one_each, "category_ids", category_ids, expected)
    return tuple(map(int, category_ids))
