"""`compile`: what it sets, what a model freezes, and how files keep both."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from effdet_keras._internal.backend import default_jit_compile
from effdet_keras._internal.weights_h5 import (
    ENDING,
    check_weights_h5,
    warn_unless_finite,
    write_weights_h5,
)
from effdet_keras._internal.whole_files import is_remote, local_path
from effdet_keras.errors import InvalidStateError, InvalidValueError
from effdet_keras.train import auto_recipe, freezing
from effdet_keras.train.accumulation import Accumulation, steps_done, steps_per_update
from effdet_keras.train.advprop import AuxiliaryNorms
from effdet_keras.train.averages import WeightAverages
from effdet_keras.train.distillation import LOSS as DISTILLATION
from effdet_keras.train.distillation import Distillation
from effdet_keras.train.gradients import check_found, decay_factors, gradient_factors
from effdet_keras.train.quantization import Quantization
from effdet_keras.train.recipe import Recipe
from effdet_keras.train.statistics_warmup import StatisticsWarmup
from effdet_keras.train.steps import step_of_backend
from effdet_keras.train.steps.contract import BackendStep


class _Latest(keras.metrics.Mean):
    """A metric that reports the last value it was given."""

    def update_state(self, value, sample_weight=None):
        self.reset_state()
        super().update_state(value)


class Trackers:
    """The running means that `fit` logs. No Keras container, so not saved."""

    def __init__(self, *, losses, with_adversarial=False):
        steps = ("gradient_norm", "learning_rate")
        self._losses = {name: keras.metrics.Mean(name=name) for name in losses}
        self._steps = {name: _Latest(name=name) for name in steps}
        if with_adversarial:
            name = "adversarial_loss"
            self._steps[name] = keras.metrics.Mean(name=name)

    @property
    def metrics(self):
        """All of them, in the order of the logs."""
        return [*self._losses.values(), *self._steps.values()]

    def log_distillation(self):
        """Logs the `distillation_loss` from now on."""
        self._steps[DISTILLATION] = keras.metrics.Mean(name=DISTILLATION)

    def forget_distillation(self):
        """Logs no `distillation_loss` any more."""
        self._steps.pop(DISTILLATION, None)

    def without_steps(self, logs):
        """Logs without those that only a training step knows."""
        return {n: value for n, value in logs.items() if n not in self._steps}

    def update_losses(self, terms):
        for name, tracker in self._losses.items():
            tracker.update_state(terms[name])
        if DISTILLATION in terms and DISTILLATION in self._steps:
            self._steps[DISTILLATION].update_state(terms[DISTILLATION])

    def update_step(self, gradient_norm, learning_rate):
        self._steps["gradient_norm"].update_state(gradient_norm)
        self._steps["learning_rate"].update_state(learning_rate)

    def update_adversarial(self, loss):
        self._steps["adversarial_loss"].update_state(loss)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a compiled model trains. `Trainer.compile` makes it, steps read it.

    Args:
        gradient_factors: list of floats, one per trainable variable, or None where
            no gradient is multiplied, so that the step has no work.
        statistics_warmup: `StatisticsWarmup`, or None for batch-norm statistics that
            move as their layers say.
    """

    recipe: Recipe
    asked: Recipe
    trackers: Trackers
    gradient_factors: list | None
    keras_options: dict
    statistics_warmup: StatisticsWarmup | None = None
    accumulation: Accumulation | None = None

    def weight_decay_loss(self, variables: Sequence[keras.Variable]) -> Any:
        """The L2 decay of some variables, a float32 scalar; see `l2_decay.py`."""
        factors = decay_factors(self.recipe.l2_decay, variables)
        decaying = [(v, factor) for v, factor in zip(variables, factors) if factor]
        if not decaying:
            return ops.zeros(())
        squares = [ops.sum(ops.square(ops.cast(v, "float32"))) for v, _ in decaying]
        halves = ops.convert_to_tensor([f / 2 for _, f in decaying], "float32")
        return ops.sum(halves * ops.stack(squares))

    def loss_scale(self, optimizer: Any) -> keras.Variable | None:
        """The variable of a float16 optimizer's loss scale, else None.

        Such an optimizer skips a step whose gradients overflow, and halves its scale:
        an error is what it cannot mend, such as a loss that is not finite.
        """
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            return optimizer.dynamic_scale
        return None


def refuse_keras_metrics(**arguments: Any) -> None:
    """Raises ValueError if any of the arguments, which `compile` lacks, is given."""
    for name, value in arguments.items():
        if value is None:
            continue
        if name == "loss_weights":
            cure = (
                "`EfficientDet` has one loss, a sum of parts: weigh them with "
                "`loss=DetectionLoss(box_loss_weight=..., iou_loss_weight=...)`."
            )
        else:
            cure = (
                "A Keras metric compares each output with a target of the same shape, "
                "and detections and ground-truth boxes differ in number and order. "
                "For average precision after each epoch pass "
                "`callbacks=[effdet_keras.callbacks.COCOEvaluation(dataset)]` to "
                "`fit`; the parts of the loss are always logged."
            )
        raise InvalidValueError(
            f"`compile` of `EfficientDet` does not take `{name}`. {cure} "
            f"Received: {name}={value!r}"
        )


# --- How to train, as `compile` sets it and files keep it: recipe, frozen, averages.

AVERAGE = "average:"
TRAINING = "training:"
TRAINED = "trained"  # in the config of a `compile`
REFINING = 10.0  # what a learning rate is divided by, to go on from what was learned


@keras.saving.register_keras_serializable(package="effdet_keras")
class CompiledDetector:
    """Tells, in the config of a `compile`, that no other kind of model can use it.

    Only `keras.models.clone_model` tries: it makes of every network a plain
    `keras.Model`, and compiles that as the detector was compiled.
    """

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        raise InvalidStateError(
            "`keras.models.clone_model` makes a plain network, which cannot be trained "
            "as a detector. `EfficientDet.from_config(model.get_config())` makes "
            "another detector, with new weights; `set_weights(model.get_weights())` "
            "gives it the same ones."
        )


class Compiling:
    """Mix-in of `keras.Model`: `compile`, what is frozen, and both in files.

    `Trainer` adds what uses them. The class that mixes them in offers `config`.
    """

    averages: WeightAverages | None = None
    # Those of adversarial images, where the training has such.
    auxiliary_norms: AuxiliaryNorms | None = None
    # The loss beside a teacher, in a `distill`.
    distillation: Distillation | None = None
    # What rounds the network in quantization-aware training, where it is prepared.
    quantization: Quantization | None = None
    # What of the weights was loaded: "backbone" or "detector"; None if all are new.
    pretrained: str | None = None
    settings: Settings | None = None
    # Whether the weights come from a training with these settings.
    _is_trained_recipe = False

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
        auxiliary = self._new_auxiliary_norms(recipe, options["jit_compile"])
        factors = self._gradient_factors(recipe, auxiliary)
        if isinstance(recipe.weight_decay, dict):
            check_found("weight_decay", recipe.weight_decay, self.variables)
        optimizer = self._with_loss_scale(recipe.new_optimizer(), recipe.loss_scale)
        # No loss of Keras' kind: `compute_loss` below is ours.
        super().compile(optimizer=optimizer, loss=None, **options)
        self.auxiliary_norms = auxiliary
        # Built here, so that loading weights finds the optimizer's variables, and
        # the first step, which would make them, is not traced a second time.
        self.optimizer.build(self.updated_variables())
        trackers = Trackers(
            losses=_names_of_losses(self.config, recipe.loss),
            with_adversarial=recipe.adversarial is not None,
        )
        if self.distillation is not None:
            trackers.log_distillation()
        self.settings = Settings(
            recipe=recipe,
            asked=asked,
            trackers=trackers,
            gradient_factors=factors if recipe.gradient_multipliers else None,
            keras_options=keras_options,
            statistics_warmup=StatisticsWarmup(self.config.batch_norm_momentum)
            if recipe.batch_norm_warmup
            else None,
            accumulation=Accumulation(self.optimizer, self.updated_variables())
            if steps_per_update(self.optimizer) > 1
            else None,
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

    def _new_auxiliary_norms(self, recipe, jit_compile):
        if recipe.adversarial is None:
            return None
        self._step.check_adversarial()
        if jit_compile:
            raise InvalidValueError(
                "`adversarial` trains without XLA: pass `jit_compile=False`, or leave "
                f"`adversarial` out. Received: jit_compile={jit_compile!r}"
            )
        if getattr(self, "features", None) is not None:
            raise InvalidValueError(
                "`adversarial` needs batch norms of its own, and those of a TF-Hub "
                "module are inside it. Train a model of `from_preset`."
            )
        return AuxiliaryNorms(freezing.batch_norms_of(self))

    def _gradient_factors(self, recipe, auxiliary):
        """One per gradient; auxiliary arrays have those of what they are copies of."""
        variables = self.trainable_variables
        if auxiliary is not None:
            variables = variables + auxiliary.trainable_sources
        return gradient_factors(recipe.gradient_multipliers, variables)

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
            self.quantization = Quantization(self, delay, batch_norm_steps, range_steps)
        # Their graphs have the network as it was.
        self.train_function = self.test_function = self.predict_function = None
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

    @contextlib.contextmanager
    def learning_from(self, distillation: Distillation) -> Iterator[None]:
        """Within this context `fit` adds the loss beside a teacher; see `distill`."""
        self.distillation = distillation
        self.settings.trackers.log_distillation()
        self.train_function = None  # its graph has not that loss
        try:
            yield
        finally:
            self.distillation = None
            self.settings.trackers.forget_distillation()
            self.train_function = None  # its graph has that loss

    def _compile_again(self, **changed):
        if self.settings is not None:
            # By its config, because an optimizer has been built for what trained.
            config = self.get_compile_config()
            self.compile_from_config({**config, "recipe": config["recipe"] | changed})

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

    def batch_norm_statistics(self) -> list[keras.Variable]:
        """The moving means and variances of all batch norms."""
        return [
            v for v in self.non_trainable_variables if v.name in freezing.STATISTICS
        ]

    def updated_variables(self) -> list[keras.Variable]:
        """What the optimizer moves: what trains, and then of the auxiliary norms."""
        auxiliary = self.auxiliary_norms
        more = [] if auxiliary is None else auxiliary.trainable_variables
        return self.trainable_variables + more

    def moved_statistics(self) -> list[keras.Variable]:
        """`batch_norm_statistics`, and those of the auxiliary norms."""
        auxiliary = self.auxiliary_norms
        more = [] if auxiliary is None else auxiliary.statistics
        return self.batch_norm_statistics() + more

    def weights_were_set(self) -> None:
        """Starts what is kept beside the weights anew from them."""
        for beside in (self.averages, self.auxiliary_norms, self.quantization):
            if beside is not None:
                beside.reset()

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

    def _saved_variables(self):
        optimizer = getattr(self, "optimizer", None)
        beside = (self.averages, self.auxiliary_norms, self.quantization)
        owners = (self, optimizer, *beside)
        return [v for owner in owners if owner is not None for v in owner.variables]

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
        self._has_loaded_averages = self._has_loaded_auxiliary = False
        self._has_loaded_ranges = False
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
        if self.auxiliary_norms is not None and not self._has_loaded_auxiliary:
            self.auxiliary_norms.reset()
        if self.quantization is not None and not self._has_loaded_ranges:
            self.quantization.reset()
        if self.averages is None:
            return
        if self._has_loaded_averages:
            self.averages.settle()
        else:
            self.averages.reset()

    def save_own_variables(self, store: Any) -> None:
        """Writes what the variables do not hold.

        Averages, or weights of training; auxiliary batch norms; and the ranges of
        quantization-aware training.
        """
        if self.quantization is not None:
            self.quantization.save(store)
        if self.auxiliary_norms is not None:
            self.auxiliary_norms.save(store)
        averages = self.averages
        if averages is None:
            return
        prefix = TRAINING if averages.is_swapped else AVERAGE
        for source, value in zip(averages.sources, averages.variables):
            store[_key(prefix, source)] = ops.convert_to_numpy(value)
        for index, value in averages.exact.items():
            store[_key(AVERAGE, averages.sources[index])] = value

    def load_own_variables(self, store: Any) -> None:
        """Reads what `save_own_variables` wrote, where file and model have it."""
        self._has_loaded_averages = _load_averages(self.averages, store)
        auxiliary = self.auxiliary_norms
        self._has_loaded_auxiliary = auxiliary is not None and auxiliary.load(store)
        quantization = self.quantization
        self._has_loaded_ranges = quantization is not None and quantization.load(store)
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

    @property
    def _steps_done(self) -> int:
        """The training steps since `compile`."""
        return steps_done(self.optimizer)

    def _averages_in_place(self):
        if self.averages is None:
            return contextlib.nullcontext()
        return self.averages.swapped()

    @functools.cached_property
    def _step(self) -> BackendStep:
        """What a training step does on the backend that runs."""
        return step_of_backend(self)


def _may_be_sealed(filepath, overwrite, options):
    """Whether it is one file of this machine, and Keras need not ask."""
    if not isinstance(filepath, (str, os.PathLike)) or is_remote(filepath):
        return False
    is_one_file = os.fspath(filepath).endswith(ENDING) and not options
    return is_one_file and (overwrite or not os.path.exists(filepath))


def _load_averages(averages: WeightAverages | None, store: Any) -> bool:
    """Returns whether there was something to read."""
    names = set(store.keys())  # the store of a `.weights.h5` is no dict
    is_swapped = any(name.startswith(TRAINING) for name in names)
    prefix = TRAINING if is_swapped else AVERAGE
    found = {name for name in names if name.startswith(prefix)}
    if averages is None or not found:
        return False
    keys = [_key(prefix, source) for source in averages.sources]
    if set(keys) != found:
        raise InvalidValueError(
            f"The file holds {len(found)} moving averages, this model {len(keys)}: "
            "it was compiled with other trainable weights. Compile it as it was when "
            "the file was written."
        )
    values = [store[key] for key in keys]
    if is_swapped:
        coarse = [_key(AVERAGE, source) for source in averages.sources]
        exact = {i: store[key] for i, key in enumerate(coarse) if key in names}
        averages.take_swapped(values, exact)
    else:
        averages.restore()
        for average, value in zip(averages.variables, values):
            average.assign(value)
    return True


def _key(prefix, variable):
    return prefix + variable.path.replace("/", ":")


def _names_of_losses(config, loss):
    """The losses of a network's heads, in the order of the logs."""
    names = []
    if config.has_detection:
        names += ["class_loss", "box_loss"]
        names += [] if loss.iou_loss_type is None else ["box_iou_loss"]
    names += ["segmentation_loss"] if config.has_segmentation else []
    return [*names, "reg_l2_loss"]
