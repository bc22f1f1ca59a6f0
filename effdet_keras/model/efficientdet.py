"""`EfficientDet`, the `keras.Model`: compile, fit, one step, detect, save, export."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import pathlib
import tempfile
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.backend import default_jit_compile
from effdet_keras._internal.extras import extra
from effdet_keras._internal.label_constants import IGNORE
from effdet_keras._internal.processes import current_processes
from effdet_keras._internal.weights_h5 import (
    ENDING,
    check_weights_h5,
    warn_unless_finite,
    write_weights_h5,
)
from effdet_keras._internal.whole_files import is_remote, local_path
from effdet_keras.data.anchor_fit import fitted_anchors, fitted_image_size
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.record import check_seg_class_names
from effdet_keras.detect.detect import ScoreThreshold, detect
from effdet_keras.detect.detections import Detections
from effdet_keras.detect.postprocess import Postprocess, finished_outputs
from effdet_keras.errors import (
    InvalidStateError,
    InvalidTypeError,
    InvalidValueError,
)
from effdet_keras.evaluate.thresholds import ScoreSettings
from effdet_keras.export.check import ExportReport
from effdet_keras.export.export_model import export_model
from effdet_keras.hub.export import export_hub_module
from effdet_keras.hub.features import HubFeatures  # noqa: F401 (for saved models)
from effdet_keras.model.anchors import anchors_of
from effdet_keras.model.config import EfficientDetConfig
from effdet_keras.model.network import build_network
from effdet_keras.train import auto_recipe, freezing, inputs
from effdet_keras.train.averages import SwapEMA, WeightAverages
from effdet_keras.train.fit_callbacks import (
    EpochLines,
    FiniteWeights,
    flat,
    let_go_afterwards,
    with_own_callbacks,
)
from effdet_keras.train.gradients import check_found, gradient_factors
from effdet_keras.train.inputs import Run
from effdet_keras.train.losses import count_positives, segmentation_loss
from effdet_keras.train.parts import (
    Accumulation,
    Part,
    StatisticsWarmup,
    steps_done,
    steps_per_update,
)
from effdet_keras.train.recipe import Recipe
from effdet_keras.train.resume import DataOrder, FromPlaceOn, Place, PlaceKeeper
from effdet_keras.train.settings import (
    CompiledDetector,
    Settings,
    Trackers,
    names_of_losses,
    refuse_keras_metrics,
)
from effdet_keras.train.steps import BackendStep, EvaluationStep, step_of_backend
from effdet_keras.weights.archive import load_archive, write_archive
from effdet_keras.weights.assign import LoadReport
from effdet_keras.weights.checkpoint_files import BEST_FILE
from effdet_keras.weights.identify import num_classes_of
from effdet_keras.weights.pretrained import (
    check_own_network,
    config_for_weights,
    export_checkpoint,
    load_source,
    load_to_resume,
)
from effdet_keras.weights.read_weights import read_weights, with_class_names

_BATCH_SIZE = 8  # of a dataset, where none is given
TRAINED = "trained"  # in the config of a `compile`
REFINING = 10.0  # what a learning rate is divided by, to go on from what was learned

# It is in the files of models. Its own file does without Keras, as a `Predictor` does.
keras.saving.register_keras_serializable(package="effdet_keras")(Postprocess)


@keras.saving.register_keras_serializable(package="effdet_keras")
class EfficientDet(keras.Model):
    """EfficientDet (https://arxiv.org/abs/1911.09070) as a Keras model.

    Images go in as pixels 0-255, RGB; mean and standard deviation are the
    model's own.

    Making a model tells glibc, where there is one, to keep memory for its large
    tensors (`effdet_keras/_internal/allocator.py`), unless a `MALLOC_` variable in
    the environment says how to.

    Args:
        config: `EfficientDetConfig` (or its `to_dict()`); None for D0.
        class_names: sequence of strings, one per label, or None.
        category_ids: sequence of ints, the id of each label in the annotation
            files, or None; then label `i` has id `i + 1`. `fit` takes names and ids
            from the dataset where they are None.
        postprocess: `Postprocess`, how `predict` and `detect` choose boxes.
        dtype: dtype policy, such as "mixed_bfloat16"; None for Keras' own.
        features: Keras layer in the place of all but the last layer of each head,
            as `from_hub` gives; see `model/network.py`. None for EfficientDet's.
        score_settings: `ScoreSettings` of an evaluation of these weights, or what its
            `to_dict` returned; None for none. It is an attribute that can be set,
            saved and exported with the model. Training, and loading weights, make it
            None: the scores are then others.
        seg_class_names: sequence of strings, one per class of pixels of the
            segmentation head, or None. `fit` takes those of the dataset where it is
            None.
        quantization: dict of arguments of `quantize_aware`, or None.
        **kwargs: `name` and `trainable` of `keras.Model`.

    Call arguments:
        images: uint8 or float tensor `[B, H, W, 3]`, pixels 0-255, in the size
            of `config.image_size`.
        training: bool.

    Returns:
        Dict of the raw outputs, float32: `class_logits` `[B, N, C]` and
        `box_deltas` `[B, N, 4]` for the `N` rows of `model.anchors`; of a segmentation
        head `segmentation_logits` `[B, h, w, K]`.
        `predict` returns `boxes` `[B, D, 4]` (`yxyx`, pixels of the input),
        `scores` `[B, D]`, `labels` `[B, D]` and `num_detections` `[B]`, and of a
        segmentation head `class_map` `[B, H, W]`, the class of each pixel.

    Raises:
        ValueError: If names or ids do not fit `config.num_classes`, or an
            image is not of the size of the input.

    Example:
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2
        ... )
        >>> outputs = model(np.zeros((1, 64, 64, 3), "uint8"))
        >>> tuple(outputs["class_logits"].shape), model.anchors.shape
        ((1, 765, 2), (765, 4))
    """

    averages: WeightAverages | None = None
    # What takes part in training steps, by name: `train/parts.py`.
    parts: Mapping[str, Part] = types.MappingProxyType({})
    # What of the weights was loaded: "backbone" or "detector"; None if all are new.
    pretrained: str | None = None
    settings: Settings | None = None  # what `compile` set
    # Whether the weights come from a training with these settings.
    _is_trained_recipe = False
    _run = Run()  # of the call under way
    # Of the `fit` under way; checkpoints ask it for the place.
    place_keeper: PlaceKeeper | None = None
    _place: Place | None = None  # that the file tells of which was loaded

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
        **kwargs: Any,
    ) -> None:
        if not isinstance(config, EfficientDetConfig):
            config = EfficientDetConfig(**(config or {}))
        class_names = _one_per_class("class_names", class_names, config.num_classes)
        category_ids = _one_per_class("category_ids", category_ids, config.num_classes)
        seg_class_names = _one_per_class(
            "seg_class_names", seg_class_names, config.seg_num_classes
        )
        kwargs.setdefault("name", config.name)
        images, outputs = build_network(config, dtype, features)
        super().__init__(inputs=images, outputs=outputs, **kwargs)
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
        self.score_settings = score_settings
        self._network_dtype = dtype
        self.parts: dict[str, Part] = {}
        self.anchors = anchors_of(config)
        # Keras' own "auto" is XLA, also on CPUs, where it is many times slower.
        self.jit_compile = default_jit_compile()
        if quantization is not None:
            self.quantize_aware(**quantization)

    @classmethod
    def from_preset(
        cls,
        name: str,
        weights: str | os.PathLike | None = None,
        num_classes: int | None = None,
        class_names: Sequence[str] | None = None,
        category_ids: Sequence[int] | None = None,
        *,
        seg_class_names: Sequence[str] | None = None,
        dataset: DetectionDataset | None = None,
        anchors: str | None = None,
        averages: bool = True,
        skip_mismatch: bool = False,
        pipeline_config: str | os.PathLike | None = None,
        verbose: int = 1,
        **config_overrides: Any,
    ) -> EfficientDet:
        """A published model by name, with random weights or weights of a file.

        Args:
            name: string, "efficientdet-d0" ... "-d7", "-d7x",
                "efficientdet-lite0" ... "-lite4", "-lite3x".
            weights: None; a key of the published weights, "coco" and, for some
                models, "coco-advprop", "coco-640" and "imagenet" (the backbone;
                `effdet_keras.list_presets()` shows all); or a path or URL, see
                `load_pretrained`.
            num_classes: int; by default the number of `class_names`, or that of
                the weights, or 90.
            class_names: sequence of strings, one per label. By default those of
                the weights, where the number is the same. Where the weights
                have other classes, the last layer of the class head starts new
                but for the classes that both name.
            category_ids: sequence of ints, one per label; see `EfficientDet`.
            seg_class_names: sequence of strings, one per class of pixels, for
                `heads=("object_detection", "segmentation")`.
            dataset: `effdet_keras.data.DetectionDataset` to train on, which gives
                `class_names`, `category_ids` and `seg_class_names` where they are
                None, and what is to be "auto".
            anchors: "auto" fits `anchor_scale` and `aspect_ratios` to the boxes of
                `dataset`, unless `weights` are a detector's, whose heads know their
                anchors. None keeps the model's.
            averages, skip_mismatch, pipeline_config, verbose: see `load_pretrained`.
            **config_overrides: fields of `EfficientDetConfig`. `image_size="auto"` is
                the smallest, up to the model's own, at which nine boxes of ten in
                `dataset`, and half of each class, are 24 pixels or larger, in the
                shape of the images. What the weights were trained with,
                such as the normalisation of AdvProp's, is taken from them if it is
                not given here.

        Returns:
            `EfficientDet`.

        Raises:
            ValueError: If the name is unknown, a field is wrong, the counts do
                not agree, the weights do not fit, or something is "auto" without a
                `dataset`.
            FileNotFoundError: If there is no file of weights.

        Example:
            >>> model = EfficientDet.from_preset("efficientdet-lite0", num_classes=3)
            >>> model.config.image_size, model.config.num_classes
            ((320, 320), 3)
        """
        # What is wrong in any case, before a download.
        EfficientDetConfig.from_name(name)
        _check_auto(name, dataset, anchors, config_overrides.get("image_size"))
        if num_classes is not None:
            config_overrides["num_classes"] = num_classes
        source = None
        if weights is not None:
            source = read_weights(
                weights,
                name,
                averages=averages,
                pipeline_config=pipeline_config,
                verbose=verbose,
            )
        if dataset is not None and class_names is None:
            class_names = dataset.class_names
            category_ids = category_ids or dataset.category_ids
        is_of_dataset = dataset is not None and seg_class_names is None
        seg_class_names = _of_segmentation(
            dataset.seg_class_names if is_of_dataset else seg_class_names,
            source,
            config_overrides,
            is_of_dataset=is_of_dataset,
        )
        has_heads = source is not None and num_classes_of(source) is not None
        fits_anchors = anchors == "auto" and not has_heads  # which have their own
        config_overrides = _fitted(name, dataset, fits_anchors, config_overrides)
        config, class_names, category_ids = config_for_weights(
            name,
            source,
            class_names=class_names,
            category_ids=category_ids,
            overrides=config_overrides,
        )
        told = None if source is None else source.postprocess
        model = cls(
            config,
            class_names=class_names,
            category_ids=category_ids,
            seg_class_names=seg_class_names if config.has_segmentation else None,
            postprocess=told and Postprocess(**told),
        )
        if source is not None:
            load_source(model, source, skip_mismatch=skip_mismatch, verbose=verbose)
        return model

    def __call__(self, images: Any, *args: Any, **kwargs: Any) -> Any:
        size = tuple(getattr(images, "shape", ()))[1:]
        if size and size != (*self.config.image_size, 3) and None not in size:
            raise InvalidValueError(
                f"`{self.name}` takes images of shape "
                f"(batch, {', '.join(map(str, self.config.image_size))}, 3). "
                f"Received: images.shape={tuple(images.shape)}. Give `image_size` to "
                "`batches` or `from_preset` so that they agree; `detect` takes "
                "images of any size."
            )
        return super().__call__(images, *args, **kwargs)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        run = functools.partial(super().call, inputs, training=training, mask=mask)
        for part in self.parts.values():
            run = functools.partial(part.call, run, bool(training))
        return run()

    @property
    def quantization(self) -> Part | None:
        """What rounds the network to 8 bits, after `quantize_aware`."""
        return self.parts.get("quantization")

    @property
    def num_classes(self) -> int:
        """Number of labels."""
        return self.config.num_classes

    @property
    def postprocess(self) -> Postprocess:
        """How `predict` and `detect` choose boxes; another one counts from now on."""
        return self._postprocess

    @postprocess.setter
    def postprocess(self, postprocess: Postprocess) -> None:
        self._postprocess = postprocess
        self.predict_function = None  # its graph has the one of before

    @property
    def score_settings(self) -> ScoreSettings | None:
        """Thresholds and temperature for `detect`, or None where none were chosen."""
        return self._score_settings

    @score_settings.setter
    def score_settings(self, settings: ScoreSettings | None) -> None:
        if settings is not None:
            if not isinstance(settings, ScoreSettings):
                raise InvalidTypeError(
                    "`score_settings` must be `ek.metrics.ScoreSettings`, such as "
                    "`evaluation.score_settings(model.class_names)`, or None. "
                    f"Received: {type(settings).__name__}"
                )
            _one_per_class("thresholds", settings.thresholds, self.num_classes)
        self._score_settings = settings

    # --- How it is trained.

    def compile(
        self,
        optimizer: str | dict | keras.optimizers.Optimizer | None = None,
        loss: Any = None,
        *,
        recipe: str | Recipe = "auto",
        metrics: Any = None,
        jit_compile: bool | str = "auto",
        run_eagerly: bool = False,
        steps_per_execution: int = 1,
        auto_scale_loss: bool = True,
        **changes: Any,
    ) -> None:
        """Sets how to train. Without arguments, `fit` chooses what fits the data.

        `recipe="auto"` leaves every argument that is not given to `fit`, which knows
        the number of images and steps and what was loaded, and prints what it chose
        and why (docs/fine_tuning.md). For 5,000 images or more that is
        `recipe="reference"`: SGD with momentum 0.9, a learning rate of 0.08 for a
        batch of 64 (scaled to yours), one epoch of warm-up, then a cosine to zero
        over the epochs of `fit`; L2 decay of kernels, two-stage gradient clipping,
        and moving averages of all weights.

        Training, optimizer and averages start anew from the weights that the model
        has: after `fit` these are the averages.

        Args:
            optimizer, loss: fields of `Recipe`, in the place of the recipe's.
            metrics: must be None. Keras' metrics cannot compare detections with ground
                truth: `fit` logs average precision with
                `effdet_keras.callbacks.COCOEvaluation`. The parts of the loss are
                weighed in `DetectionLoss`.
            recipe: "auto"; "reference" for google/automl's; "tfod" for that of the TF
                Object Detection API's configs; or a `Recipe`.
            jit_compile: bool or "auto": XLA only where it pays. On a CPU it
                makes depthwise convolutions many times slower, and compiling takes
                minutes.
            run_eagerly, steps_per_execution, auto_scale_loss: see
                `keras.Model.compile`.
            **changes: other fields of `Recipe`, such as `ema_decay=0.99`, in the place
                of the recipe's.

        Raises:
            ValueError, TypeError: If arguments are wrong or contradict.

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
        refuse_keras_metrics(
            metrics=metrics,
            **{n: changes.pop(n, None) for n in ("weighted_metrics", "loss_weights")},
        )
        given = {"optimizer": optimizer, "loss": loss}
        changes |= {name: value for name, value in given.items() if value is not None}
        asked = Recipe.of(recipe, changes)
        if asked.freeze not in (None, "auto"):
            freezing.freeze(self, asked.freeze, asked.freeze_batch_norm)
        keras_options = {
            "jit_compile": jit_compile,
            "run_eagerly": run_eagerly,
            "steps_per_execution": steps_per_execution,
            "auto_scale_loss": auto_scale_loss,
        }
        self._set_up(asked, asked.chosen(), keras_options)
        self._is_trained_recipe = False

    def _set_up(self, asked, recipe, keras_options):
        """What `compile` does once its arguments are known to be right."""
        with self._step.scope():  # `fit` may be called outside of it
            self._set_up_in_scope(asked, recipe, keras_options)

    def _set_up_in_scope(self, asked, recipe, keras_options):
        options = dict(keras_options)
        if options["jit_compile"] == "auto":
            options["jit_compile"] = default_jit_compile()
        parts = dict(self.parts)  # but for those of an earlier recipe
        for name in ("adversarial", "accumulation", "statistics_warmup"):
            parts.pop(name, None)
        if recipe.adversarial is not None:
            jit_compile = options["jit_compile"]
            parts["adversarial"] = recipe.adversarial.new_part(self, jit_compile)
        sources = [v for part in parts.values() for v in part.trainable_sources]
        factors = gradient_factors(
            recipe.gradient_multipliers, self.trainable_variables + sources
        )
        if isinstance(recipe.weight_decay, dict):
            check_found("weight_decay", recipe.weight_decay, self.variables)
        optimizer = self._with_loss_scale(recipe.new_optimizer(), recipe.loss_scale)
        # No loss of Keras' kind: `compute_loss` below is ours.
        super().compile(optimizer=optimizer, loss=None, **options)
        self.parts = parts
        # Built here, so that loading weights finds the optimizer's variables, and
        # the first step, which would make them, is not traced a second time.
        self.optimizer.build(self.updated_variables())
        if steps_per_update(self.optimizer) > 1:
            variables = self.updated_variables()
            self.parts["accumulation"] = Accumulation(self.optimizer, variables)
        if recipe.batch_norm_warmup:
            momentum = self.config.batch_norm_momentum
            self.parts["statistics_warmup"] = StatisticsWarmup(momentum)
        trackers = Trackers(names_of_losses(self.config, recipe.loss))
        for part in self.parts.values():
            trackers.add(part.logs)
        self.settings = Settings(
            recipe=recipe,
            asked=asked,
            trackers=trackers,
            gradient_factors=factors if recipe.gradient_multipliers else None,
            keras_options=keras_options,
        )
        if self.averages is not None and self.averages.is_swapped:
            self.averages.adopt()  # and it holds no weights of training any more
        self.averages = None
        if recipe.ema_decay:
            sources = self.trainable_variables + self.batch_norm_statistics()
            self.averages = WeightAverages(sources, decay=recipe.ema_decay)

    def _with_loss_scale(self, optimizer, scale):
        """The optimizer; with a `scale` of its own, where Keras would add one."""
        if scale is None:
            return optimizer
        if self.dtype_policy.name != "mixed_float16":
            raise InvalidValueError(
                '`loss_scale` is for models of `dtype="mixed_float16"`: no other loss '
                f"is scaled. Received: loss_scale={scale!r} and a model of "
                f"dtype={self.dtype_policy.name!r}"
            )
        return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=scale)

    def choose_recipe(self, facts: auto_recipe.Facts, verbose: bool = True) -> None:
        """Fills the fields that `compile` left open; `fit` calls it.

        Nothing happens where none is open, or where a step has been trained.

        Args:
            facts: `Facts` of the training that begins.
            verbose: bool, whether to print what was chosen.
        """
        asked = self.settings.asked
        if not asked.is_open or self._steps_done:
            return
        is_frozen = bool(freezing.frozen_state(self)["weights"])
        choices = [
            choice
            for choice in auto_recipe.choose(facts)
            if asked.may_choose(choice.field)
            and not (choice.field == "freeze" and is_frozen)
        ]
        recipe = asked.chosen(**{choice.field: choice.value for choice in choices})
        if any(choice.field == "freeze" for choice in choices):
            freezing.freeze(self, recipe.freeze, recipe.freeze_batch_norm)
        self._set_up(asked, recipe, self.settings.keras_options)
        self.train_function = None  # its graph has the recipe of before
        if verbose:
            print(auto_recipe.describe(choices, facts, asked.given), flush=True)

    def freeze(self, what: str, batch_norm: bool = True) -> None:
        """Stops some weights from training, and lets all others train.

        A compiled model is compiled again as it was, so that the optimizer holds
        what trains and no more: its state and the averages start anew.

        Args:
            what: "backbone", "backbone+fpn", or a regular expression that the path
                of a weight must match from its start, as the reference's
                `var_freeze_expr` does: "(efficientnet|fpn_cells|resample_p6)".
            batch_norm: bool, whether batch norms whose scale and offset are frozen
                keep their statistics and normalise with them, in training as well.

        Raises:
            ValueError: If nothing matches, or nothing is left to train.

        Example:
            >>> from effdet_keras.model.efficientdet import EfficientDet
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2
            ... )
            >>> model.freeze("backbone+fpn")
            >>> len(model.trainable_variables) < len(model.weights) / 3
            True
        """
        before = freezing.frozen_state(self)
        freezing.freeze(self, what, batch_norm)
        try:
            self._compile_again(freeze=None)
        except ValueError:  # such as a gradient multiplier that is for nothing now
            freezing.restore_frozen(self, before)
            raise

    def unfreeze(self) -> None:
        """Lets all weights train again; see `freeze`."""
        freezing.unfreeze(self)
        self._compile_again(freeze=None)

    def quantize_aware(
        self,
        delay: int = 0,
        *,
        batch_norm_steps: int = 0,
        range_steps: int | None = None,
    ) -> Any:
        """Lets the next trainings learn to live with the rounding of an int8 file.

        From now on `fit` computes with kernels, features and images in 8 bits, where
        LiteRT will; and so do `detect` and `evaluate` after the first step that did.
        `export("pets.tflite", precision="int8")` then needs no `calibration`: the
        ranges are learned. All other exports are those of the plain float network.
        Start from a trained model (docs/quantization.md). Weights and their names stay
        as they are.

        A compiled model is compiled again as it was, with a tenth of the learning rate
        that it was trained with.

        Args:
            delay: int, steps of training before the first that rounds: the
                `quant_delay` of the TF Object Detection API's `graph_rewriter`. The
                ranges are followed from the first step on.
            batch_norm_steps: int, steps of training in which batch norm takes the
                statistics of the batch. Afterwards, with 0 from the start, it takes
                the moving statistics, with which the file will be computed.
            range_steps: int, steps of training in which the ranges move; None for all.

        Returns:
            The model itself.

        Raises:
            ValueError: If a number is wrong, or the model has layers of a TF-Hub
                module, mixed precision, or an activation that is not "swish", "hswish",
                "relu" or "relu6".
            RuntimeError: If Keras runs on another backend than TensorFlow.

        Example:
            >>> from effdet_keras.model.efficientdet import EfficientDet
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-lite0", image_size=64, num_classes=2)
            >>> model.quantize_aware(delay=100, range_steps=50)
            Traceback (most recent call last):
                ...
            effdet_keras.errors.InvalidValueError: `range_steps` must be above ...

            docs/quantization.md has a whole training.
        """
        with self._step.scope():
            part = extra("quantization:Quantization")(
                self, delay, batch_norm_steps, range_steps
            )
        self.add_part("quantization", part)
        if self.settings is not None:
            self.compile_from_config(self.refining_config())
        return self

    def refining_config(self) -> dict:
        """`get_compile_config`, to go on from what was learned with it.

        All is as it was, but for the learning rate: one that the weights were trained
        with is divided by 10, as they are near where they will be.
        """
        config = dict(self.get_compile_config())
        rate = config["recipe"]["learning_rate"] if config else None
        if config.pop(TRAINED, False) and rate is not None:
            config["recipe"] = {**config["recipe"], "learning_rate": rate / REFINING}
        return config

    def add_part(self, name: str, part: Part) -> None:
        """Lets something take part in training steps from now on."""
        self.parts[name] = part
        self._parts_changed(part, "add")

    def remove_part(self, name: str) -> None:
        """Ends what `add_part` began."""
        self._parts_changed(self.parts.pop(name), "remove")

    def _parts_changed(self, part, change):
        if self.settings is not None:
            getattr(self.settings.trackers, change)(part.logs)
        # Their graphs have the parts of before.
        self.train_function = self.test_function = self.predict_function = None

    def _compile_again(self, **changed):
        if self.settings is not None:
            # By its config, because an optimizer has been built for what trained.
            config = self.get_compile_config()
            self.compile_from_config({**config, "recipe": config["recipe"] | changed})

    def get_compile_config(self) -> dict:
        if self.settings is None:
            return {}
        # What `fit` chose counts from its first step on.
        recipe = self.settings.recipe if self._steps_done else self.settings.asked
        is_trained = self._steps_done or self._is_trained_recipe
        return {
            "recipe": recipe.get_config(),
            **({TRAINED: True} if is_trained else {}),
            "frozen": freezing.frozen_state(self),
            "of": keras.saving.serialize_keras_object(CompiledDetector()),
            **self.settings.keras_options,
        }

    def compile_from_config(self, config: dict) -> None:
        options = {name: value for name, value in config.items() if name != "of"}
        if "frozen" in options:  # not in files of before there was freezing
            freezing.restore_frozen(self, options.pop("frozen"))
        is_trained = options.pop(TRAINED, False)
        recipe = Recipe.from_config(options.pop("recipe"))
        if recipe.freeze != "auto":  # `frozen` has told
            recipe = dataclasses.replace(recipe, freeze=None)
        self.compile(recipe=recipe, **options)
        self._is_trained_recipe = is_trained

    def batch_norm_statistics(self) -> list[keras.Variable]:
        """The moving means and variances of all batch norms."""
        return [
            v for v in self.non_trainable_variables if v.name in freezing.STATISTICS
        ]

    def updated_variables(self) -> list[keras.Variable]:
        """What the optimizer moves: what trains, and then that of the parts."""
        more = [v for part in self.parts.values() for v in part.trainable_variables]
        return self.trainable_variables + more

    def moved_statistics(self) -> list[keras.Variable]:
        """`batch_norm_statistics`, and those of the parts."""
        more = [v for part in self.parts.values() for v in part.statistics]
        return self.batch_norm_statistics() + more

    @property
    def _steps_done(self) -> int:
        """The training steps since `compile`."""
        return steps_done(self.optimizer)

    @functools.cached_property
    def _step(self) -> BackendStep:
        """What a training step does on the backend that runs."""
        return step_of_backend(self)

    # --- Training, evaluation, prediction.

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
        inputs.adopt_classes(self, dataset)
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

    def _num_epochs(self, data, batch_size):
        """The number of epochs where none is given."""
        is_open = self.settings is not None and self.settings.asked.is_open
        if not (is_open and isinstance(data, DetectionDataset)):
            return 1
        return auto_recipe.num_epochs(len(data), batch_size or _BATCH_SIZE)

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

    # Keras calls these; what differs from backend to backend is in `train/steps`.

    def train_step(self, *args: Any) -> Any:
        return self._step.train(super().train_step, *args)

    def test_step(self, *args: Any) -> Any:
        return self._step.test(super().test_step, *args)

    def predict_step(self, *args: Any) -> Any:
        return self._step.predict(super().predict_step, *args)

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
        for part in self.parts.values():
            if (more := part.loss(truth, outputs)) is not None:
                weight, value = more
                loss = terms["loss"] + weight * value
                terms = {**terms, "loss": loss, part.logs[0]: value}
        decay = self.settings.weight_decay_loss(self.trainable_variables)
        is_valid = inputs.is_valid_batch(truth, self.config)
        loss = ops.where(is_valid, terms["loss"] + decay, float("nan"))
        return {**terms, "reg_l2_loss": decay, "loss": loss}

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
        rule = recipe.loss.normalizer_of
        parts = self.parts.values() if training else ()
        for one in (*parts, self._step):
            normalizer = one.normalizer(num_positives, rule)
            if normalizer is not None:
                break
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

    def refusal(self, truth: dict, *, step: int | None = None) -> Exception:
        """The error for a batch whose loss is not finite; see `Run.refusal`."""
        return self._run.refusal(truth, self.config, step)

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

    @functools.cached_property
    def _evaluation_step(self):
        """Keeps the `EvaluationStep`, where Keras does not take it for a layer."""
        return types.SimpleNamespace(step=None)

    def _evaluated(self, arrays):
        """What the `EvaluationStep` of the model as it is now returns of a batch."""
        step = self._evaluation_step.step
        if step is None or not step.is_for(self):
            step = self._evaluation_step.step = EvaluationStep(self)
        return step.predict_on_batch(arrays)

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

    def detect_outputs(
        self, outputs: dict[str, Any], content_sizes: Any = None
    ) -> dict[str, Any]:
        """Network outputs as detections, in pixels of the input; see `predict`."""
        return finished_outputs(
            outputs,
            self.postprocess,
            self.anchors,
            self.config,
            content_sizes=content_sizes,
        )

    def detect_step(self, images: Any) -> dict[str, Any]:
        """What `predict` compiles: the network, then the postprocess."""
        return self.detect_outputs(self(images, training=False))

    def detect(
        self,
        images: Any,
        score_threshold: ScoreThreshold = 0.3,
        *,
        batch_size: int = 8,
        verbose: int | str = "auto",
        calibrated: bool = False,
    ) -> Detections | list[Detections]:
        """Finds objects in images of any size.

        Images are letterboxed into the network's input as in evaluation, and
        boxes come back in pixels of the original.

        Args:
            images: path of an image or of a folder of images; array
                `[H, W, 3]`, `[H, W]` or `[H, W, 4]` of pixels 0-255; or a list
                of any of these, or an array `[B, H, W, 3]`.
            score_threshold: float, the lowest score to keep; or "best", for each
                class the threshold that is in `score_settings`.
            batch_size: int, images at once.
            verbose: 0, 1 or "auto": a progress bar, by default where there is
                more than one batch.
            calibrated: bool, whether scores get the temperature of `score_settings`,
                which makes them more like the share of detections that is right.
                A number in `score_threshold` is then compared with calibrated scores.
                The thresholds of "best" were chosen before the temperature and are
                compared so: `calibrated` changes the scores, not what is found.

        Returns:
            `Detections` for one image, else a list of them.

        Raises:
            FileNotFoundError: If an image or folder does not exist.
            ValueError, TypeError: If something is not an image.
            RuntimeError: If thresholds or a temperature are asked for, and the model
                has none.

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
        )

    # --- Files.

    def save(self, filepath: str | os.PathLike, *args: Any, **kwargs: Any) -> None:
        """Saves the model as Keras does, with averages and weights of training."""
        with self._averages_in_place():
            super().save(filepath, *args, **kwargs)

    def save_weights(
        self, filepath: str | os.PathLike, overwrite: bool = True, **kwargs: Any
    ) -> None:
        """Saves the weights as Keras does, with averages and weights of training.

        A `.weights.h5` appears whole or not at all, and is sealed: loading it notices
        if a byte of it has changed.
        """
        save = functools.partial(super().save_weights, overwrite=True, **kwargs)
        with self._averages_in_place():
            if not _may_be_sealed(filepath, overwrite, kwargs):
                super().save_weights(filepath, overwrite, **kwargs)
            else:
                path = local_path(filepath, "`filepath`")
                write_weights_h5(path, save, self._saved_variables())

    def _kept_beside(self):
        """What files keep besides variables of the model and of the optimizer."""
        averages = [] if self.averages is None else [self.averages]
        return [*averages, *self.parts.values()]

    def _saved_variables(self):
        optimizer = getattr(self, "optimizer", None)
        owners = [
            self,
            *([] if optimizer is None else [optimizer]),
            *self._kept_beside(),
        ]
        return [variable for owner in owners for variable in owner.variables]

    def load_weights(
        self, filepath: str | os.PathLike, skip_mismatch: bool = False, **kwargs: Any
    ) -> None:
        """Loads weights as Keras does; averages that the file lacks start anew.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If its weights are of other shapes than the model's, for
                instance of another `num_classes`, and `skip_mismatch` is False; or if
                the file is damaged. Model and optimizer are then as before.
        """
        if os.path.isfile(filepath):
            check_weights_h5(filepath)
        self._loaded = []
        try:
            with self._unchanged_by_errors():
                super().load_weights(filepath, skip_mismatch=skip_mismatch, **kwargs)
        except ValueError as error:
            if "could not be loaded" not in str(error):
                raise
            raise InvalidValueError(
                f"The weights in {str(filepath)!r} do not fit the model, which has "
                f"`num_classes` {self.config.num_classes}. Make it with the class "
                "count and config of the file, or pass `skip_mismatch=True` to leave "
                f"what does not fit as it is. Keras says: {error}"
            ) from error
        self.score_settings = None  # an evaluation of other weights chose them
        warn_unless_finite(self, filepath)
        for kept in self._kept_beside():
            if kept not in self._loaded:
                kept.reset()
            elif kept is self.averages:
                kept.settle()

    def save_own_variables(self, store: Any) -> None:
        for kept in self._kept_beside():
            kept.save(store)

    def load_own_variables(self, store: Any) -> None:
        self._loaded = [kept for kept in self._kept_beside() if kept.load(store)]
        self.pretrained = "detector"

    @contextlib.contextmanager
    def _unchanged_by_errors(self) -> Iterator[None]:
        """Puts all weights, averages and the optimizer back where the block raises."""
        variables = self._saved_variables()
        values = [np.array(ops.convert_to_numpy(v)) for v in variables]
        pretrained = self.pretrained
        state = None if self.averages is None else self.averages.state
        try:
            yield
        except BaseException:
            for variable, value in zip(variables, values):
                variable.assign(value)
            self.pretrained = pretrained
            if state is not None:
                self.averages.state = state
            raise

    def _averages_in_place(self):
        if self.averages is None:
            return contextlib.nullcontext()
        return self.averages.swapped()

    def weights_were_set(self) -> None:
        """Starts what is kept beside the weights anew from them."""
        for kept in self._kept_beside():
            kept.reset()

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Sets all weights; training and its averages both start from them.

        Args:
            weights: list of arrays, as `get_weights` gives them.
        """
        super().set_weights(weights)
        self.weights_were_set()

    def get_config(self) -> dict[str, Any]:
        policy, settings = self._network_dtype, self.score_settings
        return {
            "name": self.name,
            "trainable": self.trainable,
            "config": self.config.to_dict(),
            "class_names": self.class_names,
            "category_ids": self.category_ids,
            "postprocess": keras.saving.serialize_keras_object(self.postprocess),
            "features": keras.saving.serialize_keras_object(self.features),
            "score_settings": settings.to_dict() if settings is not None else None,
            **self._config_of_segmentation(),
            **self._config_of_quantization(),
            "dtype": keras.saving.serialize_keras_object(policy) if policy else None,
        }

    def _config_of_segmentation(self):
        """Nothing without the head: such files are as they were before."""
        if not self.config.has_segmentation:
            return {}
        return {"seg_class_names": self.seg_class_names}

    def _config_of_quantization(self):
        if self.quantization is None:
            return {}
        return {"quantization": self.quantization.get_config()}

    @classmethod
    def from_config(
        cls, config: dict, custom_objects: dict | None = None
    ) -> EfficientDet:
        return cls(**keras.saving.deserialize_keras_object(config, custom_objects))

    @classmethod
    def from_archive(
        cls, path: str | os.PathLike, resume: bool = False
    ) -> EfficientDet:
        """The model that `CheckpointArchive` or `model.save` wrote.

        Args:
            path: path of the `.keras` file, or of the folder of an archive or a run
                (its best checkpoint, or with `resume` its last; if that is damaged, the
                newest in the folder that is whole, and a warning says so); or the
                address of one of them, such as `s3://bucket/run`
                (docs/remote_files.md).
            resume: bool. Either way the model has the moving averages in the place of
                its weights, where there were any. True keeps the weights of training
                beside them: the next `fit` goes on from these, bit by bit. False
                makes the averages its only weights, for a new training.

        Returns:
            `EfficientDet`.

        Raises:
            FileNotFoundError, ValueError: If there is no such file, or it is
                damaged or of another kind.
        """
        model = load_to_resume(path) if resume else load_archive(path)
        if not hasattr(model, "detect_step"):
            raise InvalidValueError(
                f"'{path}' holds a `{type(model).__name__}`, not an `EfficientDet`. "
                "Load it with `keras.saving.load_model`."
            )
        return model

    def load_pretrained(
        self,
        source: str | os.PathLike,
        *,
        averages: bool = True,
        skip_mismatch: bool = False,
        checkpoint_type: str | None = None,
        class_names: Sequence[str] | None = None,
        sha256: str | None = None,
        pipeline_config: str | os.PathLike | None = None,
        verbose: int = 1,
    ) -> LoadReport:
        """Loads weights of any known kind, and prints what was loaded.

        Known are google/automl's checkpoints (TF1 names, tf2 object graph, `.h5`),
        PyTorch effdet's `.pth` and `.safetensors`, Keras Applications'
        EfficientNet files, and our own; in a folder, in a `.tar.gz`, or behind an
        http(s) address, which is fetched once. Nothing is unpickled. All is
        checked before the first weight changes.

        A file of a backbone alone leaves the rest as it is. Where the classes of
        file and model differ, the last layer of the class head stays as it is;
        where both name their classes, what belongs to a shared name is loaded.
        A model without `class_names` takes those of the file, if the number is the
        same. Moving averages of a compiled model start again from what was loaded; an
        optimizer's state is not touched.

        Args:
            source: path, URL, or a key such as "coco"; see `from_preset`.
            averages: bool, whether to load moving averages where the file has
                them, as the reference evaluates, or the raw weights.
            skip_mismatch: bool, whether to leave weights that the file lacks, or
                has in another shape, as they are, instead of raising.
            checkpoint_type: what to take of the file, as `fine_tune_checkpoint_type`
                of the Object Detection API: "classification", the backbone;
                "detection", the backbone and the BiFPN; "full", all, which then
                must fit. None is as described above.
            class_names: sequence of strings, the names of the file's classes
                where it does not tell them.
            sha256: string, digest that a downloaded file must have.
            pipeline_config: path of the `pipeline.config` of a checkpoint of the Object
                Detection API, or of its folder, where it is not in the checkpoint's.
            verbose: 0 or 1, whether to print the report.

        Returns:
            `LoadReport`.

        Raises:
            ValueError: If the file is damaged or of no known kind, or does not
                fit; the message names the array, both shapes and the cure.
            OSError: If there is no such file, or it cannot be fetched.
            ImportError: If a package is missing that reads this kind.

        Example:
            >>> import tempfile
            >>> small = {"image_size": 64, "max_level": 6}
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", class_names=["cat", "dog"], **small)
            >>> path = f"{tempfile.mkdtemp()}/pets.weights.h5"
            >>> model.save_weights(path)
            >>> other = EfficientDet.from_preset(
            ...     "efficientdet-d0", class_names=["dog", "bird", "fox"], **small)
            >>> report = other.load_pretrained(
            ...     path, class_names=["cat", "dog"], verbose=0)
            >>> report.new[0].reason, report.new[0].carried
            ('the file has 2 classes, the model 3', ('dog',))
        """
        check_own_network(self, "load weights of other files", "load_weights")
        source = read_weights(
            source,
            self.config.name,
            averages=averages,
            sha256=sha256,
            pipeline_config=pipeline_config,
            verbose=verbose,
        )
        if class_names is not None:
            source = with_class_names(source, class_names)
        return load_source(
            self,
            source,
            skip_mismatch=skip_mismatch,
            checkpoint_type=checkpoint_type,
            verbose=verbose,
        )

    @classmethod
    def from_pipeline_config(
        cls,
        path: str | os.PathLike,
        weights: str | os.PathLike | None = None,
        class_names: Sequence[str] | None = None,
        category_ids: Sequence[int] | None = None,
        *,
        averages: bool = True,
        skip_mismatch: bool = False,
        ignore_unknown: bool = False,
        verbose: int = 1,
        **config_overrides: Any,
    ) -> EfficientDet:
        """A model, compiled, from a `pipeline.config` of the Object Detection API.

        Network, image size, resizing, anchors, scales of box codes, classes and
        postprocess are those of the file, and so are losses, optimizer and schedule.
        What has no place here is printed. Classes have the names of the file's label
        map, where it is on this machine or beside the file; 90 without names
        are COCO's.

        `ek.fine_tune(data, pipeline_config=path)` trains with all of it, the batch size
        and augmentation too.

        Args:
            path: path of the file.
            weights: None for random weights; or a key, path or URL, see
                `load_pretrained`. Last layers that were trained with another order of
                anchors or other scales of codes are converted.
            class_names, category_ids: sequences with an entry per label, in the place
                of the file's. Their number may be another one: the last layer of the
                class head then starts new, but for the classes that both name.
            averages, skip_mismatch: see `load_pretrained`.
            ignore_unknown: bool, whether to make the model although the file asks for
                something that changes detections and is not done here. Without it that
                is an error, which lists all of it.
            verbose: 0 or 1, whether to print what was loaded, and what has no place.
            **config_overrides: fields of `EfficientDetConfig`, in the place of the
                file's.

        Returns:
            `EfficientDet`.

        Raises:
            OSError: If there is no such file.
            ValueError: If it is the config of another kind of model, or a field has a
                wrong value, or the weights do not fit.

        Example:
            >>> import pathlib, tempfile
            >>> path = pathlib.Path(tempfile.mkdtemp(), "pipeline.config")
            >>> _ = path.write_text('''model { ssd {
            ...   num_classes: 2
            ...   image_resizer { keep_aspect_ratio_resizer {
            ...     min_dimension: 128 max_dimension: 128 pad_to_max_dimension: true } }
            ...   feature_extractor {
            ...     type: "ssd_efficientnet-b0_bifpn_keras"
            ...     conv_hyperparams { activation: SWISH }
            ...     bifpn { num_iterations: 1 num_filters: 64 } }
            ...   box_predictor { weight_shared_convolutional_box_predictor {
            ...     depth: 64 num_layers_before_predictor: 1 use_depthwise: true
            ...     conv_hyperparams { activation: SWISH } } }
            ...   post_processing { score_converter: SIGMOID }
            ... } }
            ... train_config { optimizer { adam_optimizer { learning_rate {
            ...   constant_learning_rate { learning_rate: 0.001 } } } } }''')
            >>> model = EfficientDet.from_pipeline_config(path, verbose=0)
            >>> model.config.image_size, model.config.box_scales
            ((128, 128), (10.0, 10.0, 5.0, 5.0))
        """
        return extra("tfod.model:model_of_pipeline")(
            cls,
            path,
            weights,
            class_names=class_names,
            category_ids=category_ids,
            averages=averages,
            skip_mismatch=skip_mismatch,
            ignore_unknown=ignore_unknown,
            verbose=verbose,
            overrides=config_overrides,
        )

    @classmethod
    def from_hub(
        cls,
        handle: str | os.PathLike,
        num_classes: int | None = None,
        class_names: Sequence[str] | None = None,
        category_ids: Sequence[int] | None = None,
        *,
        trainable: bool = True,
        model_name: str | None = None,
        verbose: int = 1,
        **config_overrides: Any,
    ) -> Any:
        """A model from a TF-Hub module: with new last layers, to fine-tune.

        A module that is an EfficientDet (by the names of its variables, and by
        what it computes) becomes this package's network with its weights; the
        module is not needed again. Of any other feature module the graph itself
        is used, on TensorFlow; a saved model then needs the module on the machine
        that loads it. Both train, freeze, save and export alike.

        Needs tensorflow_hub, which finds, fetches and caches
        (`TFHUB_CACHE_DIR`). A module is a program: load those you trust.

        Args:
            handle: http(s) address or folder of a feature module in google/automl's
                format, as `export_hub_module` writes it; or of a detector.
            num_classes: int; by default the number of `class_names`.
            class_names: sequence of strings, one per label.
            category_ids: sequence of ints, one per label; see `EfficientDet`.
            trainable: bool. False freezes all but the new layers, see `freeze`;
                `unfreeze()` undoes it.
            model_name: string, the published model whose image size, anchors and
                normalisation the module goes with, such as "efficientdet-lite0". By
                default what is recognised, else "efficientdet-d0".
            verbose: 0 or 1, whether to print what the module is.
            **config_overrides: fields of `EfficientDetConfig`.

        Returns:
            `EfficientDet`; of a detector module a `HubDetector`, which can `detect`
            and nothing else.

        Raises:
            OSError: If there is nothing at the address or path.
            ValueError: If the module has another format, or its levels do not fit
                the config; the message tells what was found.
            ImportError: If tensorflow_hub cannot be imported.

        Example:
            >>> EfficientDet.from_hub("nowhere", num_classes=2)
            Traceback (most recent call last):
                ...
            FileNotFoundError: There is no TF-Hub module 'nowhere': ...

            `export_hub_module` has one that finds its module.
        """
        from effdet_keras.hub.from_hub import from_hub  # it makes models of this class

        return from_hub(
            cls,
            handle,
            num_classes=num_classes,
            class_names=class_names,
            category_ids=category_ids,
            trainable=trainable,
            model_name=model_name,
            verbose=verbose,
            overrides=config_overrides,
        )

    def with_activation(self, name: str) -> EfficientDet:
        """Another model with the same weights, and another activation.

        Phones compute "hswish" and "relu6" faster than "swish". The weights know
        nothing of the new one: `effdet_keras.distill(model, other, train)` teaches it.
        The other one is compiled as this one is, with a tenth of the learning rate that
        it was trained with. Batch norm keeps its statistics.

        Args:
            name: string, one of `effdet_keras.model.config.ACTIVATIONS`.

        Returns:
            `EfficientDet`. This one stays as it is.

        Raises:
            ValueError: If there is no such activation, or the model has the layers of
                a TF-Hub module.

        Example:
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2)
            >>> model.with_activation("hswish").config.activation
            'hswish'
        """
        if self.features is not None:
            raise InvalidValueError(
                "The activations of a TF-Hub module are inside it. Take a model of "
                "`from_preset`."
            )
        config = self.config.replace(activation=name)
        other = type(self).from_config(
            {**self.get_config(), "config": config.to_dict()}
        )
        other.set_weights(self.get_weights())
        other.pretrained = self.pretrained
        if self.settings is not None:
            other.compile_from_config(self.refining_config())
        return other

    def export(
        self,
        path: str | os.PathLike,
        format: str | None = None,
        *,
        target: str | None = None,
        images: Any = None,
        evaluate: DetectionDataset | None = None,
        verbose: int = 1,
        **options: Any,
    ) -> ExportReport:
        """Writes the model as a file of another runtime, checked in that runtime.

        The export has the moving averages as its weights, where there are any. The
        written file and this model then run on the same images; the result is
        printed, and stored as `export_report.json` in the folder, or beside a file
        (`pets.tflite.export_report.json`). If they disagree, nothing is written. An
        earlier export at `path` stays whole until the new one is complete.

        Args:
            path: what to write: a folder for "saved_model", else a file that ends
                in `.tflite`, `.onnx` or `.xml` (OpenVINO).
            format: "saved_model", "litert", "onnx" or "openvino"; None goes by the
                end of `path`.
            target: in the place of a format, where the model will run: "mediapipe",
                "coral", "frigate", "litert-gpu", "tf-serving", "triton" or "browser".
                `path` is then a folder, which gets the model in the form that the
                target takes, and what else it needs (docs/export_targets.md).
            images: images to check with, whatever `detect` takes; None for drawn
                ones.
            evaluate: `effdet_keras.data.DetectionDataset`, on which to compare the
                AP of this model with that of its export; None for no dataset.
            verbose: 0 or 1, whether to print the report.
            **options: of the format, such as `precision="int8"` and `calibration`
                of "litert", `outputs="raw"` of all but "saved_model", `batch_size`
                of "onnx", `names="tfod"` of "saved_model". All are in docs/export.md
                and the pages it leads to.

        Returns:
            `ExportReport`.

        Raises:
            ValueError: If the export does not compute what the model does.
            FileExistsError: If `path` is a folder that is not an export.
            RuntimeError: If Keras runs on another backend than TensorFlow.
            ImportError: If a package is missing that writes or runs the format.

        Example:
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2)
            >>> model.export("out/model.pb")
            Traceback (most recent call last):
                ...
            effdet_keras.errors.InvalidValueError: `format` must be one of ...

            docs/export.md has those that write.
        """
        return export_model(
            self,
            path,
            format,
            target=target,
            images=images,
            evaluate=evaluate,
            verbose=verbose,
            **options,
        )

    def export_checkpoint(self, path: str | os.PathLike, format: str) -> None:
        """Writes the weights in the format of an older tool.

        Args:
            path: for "automl-tf1" the prefix of the checkpoint, such as
                "out/efficientdet-d0/model"; for "torch-effdet" a path that ends
                in `.pth` or `.safetensors`.
            format: "automl-tf1": google/automl's names, with the weights of
                training and, as `ExponentialMovingAverage`, the averages.
                "torch-effdet": the state dict of PyTorch effdet's
                `tf_efficientdet` model of this size, with the averages.

        Raises:
            ValueError: If the format is unknown, the path does not fit it, or
                the older tool has no such network.

        Example:
            >>> import tempfile
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", image_size=64, num_classes=2, max_level=6)
            >>> prefix = f"{tempfile.mkdtemp()}/model"
            >>> model.export_checkpoint(prefix, format="automl-tf1")
            >>> model.load_pretrained(prefix, verbose=0).num_averages > 0
            True
        """
        export_checkpoint(self, path, format)

    def export_hub_module(self, path: str | os.PathLike) -> None:
        """Writes the network without the last layers as a TF-Hub feature module.

        That is a folder that `from_hub`, `tensorflow_hub.load`, `hub.KerasLayer`
        and google/automl's trainer (`hub_module_url`) load, without this package.
        It is called with normalised float32 images of `config.image_size` and
        `training`, and returns a list of class features and a list of box
        features. It holds the moving averages where there are any; what is frozen
        here is free there. The folder appears once it is complete.

        Args:
            path: folder to write. It must not exist.

        Raises:
            FileExistsError: If `path` exists.
            RuntimeError: If Keras runs on another backend than TensorFlow.

        Example:
            >>> import tempfile
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-lite0", image_size=64, num_classes=2, max_level=5,
            ...     fpn_cell_repeats=1, head_repeats=1)
            >>> path = f"{tempfile.mkdtemp()}/lite0"
            >>> model.export_hub_module(path)
            >>> other = EfficientDet.from_hub(path, class_names=["cat"], verbose=0)
            >>> other.config.image_size, other.num_classes
            ((64, 64), 1)
        """
        export_hub_module(self, path)

    def push_to_hub(
        self,
        address: str,
        *,
        license: str | None = None,
        private: bool | None = None,
        overwrite: bool = False,
        metrics: Mapping[str, float] | None = None,
    ) -> str:
        """Pushes the model to the Hugging Face Hub, with a model card.

        Its archive (`best.keras`), a description (`archive.json`) and a card
        (`README.md`) become one commit. A repository that is not there is made; one
        that has a model of the same configuration and classes gets a new commit,
        and the older ones stay in its history. `from_archive("hf://owner/name")` loads
        it again. Needs `pip install "effdet-keras[huggingface]"`.

        Args:
            address: `hf://owner/name`.
            license: of the weights, as the hub spells it, such as "apache-2.0"; None
                keeps the one that the card there names, if any.
            private: whether a new repository is private; None is the hub's default.
            overwrite: whether a repository with another model or other files may get
                the commit, too. The model files that are in it, such as a lone
                `.tflite`, are deleted in that commit; all others stay.
            metrics: COCO's numbers by name for the card, as `evaluate` of a
                `Predictor` returns them.

        Returns:
            string, the address of the commit.

        Raises:
            ValueError: If `address` is not one of a whole repository.
            FileExistsError: If the repository has something else.
            PermissionError: If this login may not do it.
            OSError: If the hub cannot be reached.
            RuntimeError: If it is to be private and is there and public.
            ImportError: If the extra is not installed.

        Example:
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2)
            >>> model.push_to_hub("cats")
            Traceback (most recent call last):
                ...
            effdet_keras.errors.InvalidValueError: An address of the Hugging Face ...
        """
        extra("remote.hugging_face:parse_hub_address")(address)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, BEST_FILE)
            write_archive(self, path)
            return extra("sharing.push:push_archive")(
                path,
                address,
                license=license,
                private=private,
                overwrite=overwrite,
                numbers=metrics,
            )


def _check_auto(name, dataset, anchors, image_size):
    """Whether "auto" stands where it may, and there are boxes to fit to."""
    if anchors not in (None, "auto"):
        raise InvalidValueError(
            "`anchors` must be 'auto' or None; numbers go to `anchor_scale`, "
            f"`aspect_ratios` and `num_scales`. Received: anchors={anchors!r}"
        )
    if dataset is None and (image_size == "auto" or anchors == "auto"):
        raise InvalidValueError(
            "'auto' is fitted to boxes: pass the dataset to train on, as in "
            f"`from_preset({name!r}, dataset=train, image_size='auto')`."
        )


def _of_segmentation(names, source, overrides, *, is_of_dataset):
    """The names of the classes of pixels; sets their number in the overrides."""
    heads = overrides.get("heads", ((source and source.config) or {}).get("heads", ()))
    if "segmentation" not in heads or names is None:
        return None
    names = check_seg_class_names(names)
    count = overrides.setdefault("seg_num_classes", len(names))
    if is_of_dataset and count > len(names):
        return None  # more outputs than the dataset has names for
    return names


def _fitted(name, dataset, fits_anchors, overrides):
    """The overrides of a config, with numbers in the place of "auto"."""
    overrides = dict(overrides)
    if overrides.get("image_size") == "auto":
        del overrides["image_size"]
        config = EfficientDetConfig.from_name(name, **overrides)
        overrides["image_size"] = fitted_image_size(dataset, config)
    if fits_anchors:
        config = EfficientDetConfig.from_name(name, **overrides)
        overrides |= fitted_anchors(dataset, config)
    return overrides


def _one_per_class(field, values, num_classes):
    if values is None:
        return None
    values = tuple(values)
    if len(values) != num_classes:
        raise InvalidValueError(
            f"`{field}` must have one entry for each of the {num_classes} classes. "
            f"Received: {len(values)} entries, {field}={values[:5]!r}..."
        )
    return values


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


def _may_be_sealed(filepath, overwrite, options):
    """Whether it is one file of this machine, and Keras need not ask."""
    if not isinstance(filepath, (str, os.PathLike)) or is_remote(filepath):
        return False
    is_one_file = os.fspath(filepath).endswith(ENDING) and not options
    return is_one_file and (overwrite or not os.path.exists(filepath))
