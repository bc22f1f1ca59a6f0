"""How to train, as `compile` sets it: what trains, by which recipe; kept in files."""

import keras
from keras import ops

from effdet_keras.errors import InvalidValueError
from effdet_keras.training import freezing
from effdet_keras.training.ema import WeightAverages
from effdet_keras.training.gradient_multipliers import gradient_factors
from effdet_keras.training.recipe import Recipe

_AVERAGE_PREFIX = "average:"


class _Latest(keras.metrics.Mean):
    """A metric that reports the last value it was given."""

    def update_state(self, value, sample_weight=None):
        self.reset_state()
        super().update_state(value)


class _Trackers:
    """The running means that `fit` logs. No Keras container, so not saved."""

    def __init__(self, with_iou_loss):
        names = ["class_loss", "box_loss", "reg_l2_loss"]
        if with_iou_loss:
            names.insert(2, "box_iou_loss")
        self.losses = {name: keras.metrics.Mean(name=name) for name in names}
        # Only train_step knows these.
        self.steps = {
            name: _Latest(name=name) for name in ("gradient_norm", "learning_rate")
        }


class Compiling:
    """Mix-in of `keras.Model`: `compile`, freezing, averages, without a backend.

    The class that mixes it in offers `config` and `default_jit_compile`.
    """

    _reports_steps = False  # whether train_step updates `_Trackers.steps`

    averages = None
    _recipe = None
    _trackers = None

    def compile(
        self,
        optimizer=None,
        loss=None,
        *,
        schedule=None,
        learning_rate=None,
        weight_decay="auto",
        clip_norm=10.0,
        ema_decay=0.9998,
        gradient_multipliers=None,
        freeze=None,
        freeze_batch_norm=True,
        jit_compile="auto",
        run_eagerly=False,
        steps_per_execution=1,
        auto_scale_loss=True,
    ):
        """Sets how to train. Without arguments: the reference's recipe.

        That is SGD with momentum 0.9, a learning rate of 0.08 for a batch of
        64 (scaled to yours), one epoch of warm-up, then a cosine to zero over
        the epochs of `fit`; L2 decay of kernels, two-stage gradient clipping,
        and moving averages of all weights.

        Args:
            optimizer: None for the reference's; "sgd", "momentum" (SGD with 0.9),
                "adam", "adamw" or "rmsprop"; a dict of such a name and Keras' own
                arguments, such as `{"name": "rmsprop", "momentum": 0.9}`; or a
                Keras optimizer, which brings its own learning rate.
            loss: `effdet_keras.losses.DetectionLoss`, or None for its defaults.
            schedule: "cosine" (the default), "stepwise" or "polynomial", which are
                as long as the training; "constant"; a dict of a name and settings,
                such as `{"name": "cosine", "warmup_steps": 500}`, `{"name":
                "exponential", "decay_steps": 1000, "decay_rate": 0.9}` or `{"name":
                "manual_step", "boundaries": [...], "rates": [...]}` (all settings:
                `training/named_schedules.py`); or a Keras `LearningRateSchedule`.
            learning_rate: float, the highest rate of a named schedule. For the
                reference's optimizer it is that of a batch of 64, scaled to yours,
                0.08 by default. For one by name it is not scaled, and Keras' own
                default is: 0.001, and 0.01 for SGD. Its warm-up begins at a tenth.
            weight_decay: float or None; `weight_decay / 2 * sum(w**2)` over the
                kernels (no biases, no batch norm) is added to the loss. For
                "adamw" it is AdamW's own decay, of kernels as well, and nothing is
                added. "auto" is 4e-5; for "adamw" 0.004; for a Keras optimizer
                with a `weight_decay` of its own, nothing more.
            clip_norm: float or None. Each gradient is clipped to this norm,
                then all together. On JAX and torch only the second, and not for a
                Keras optimizer, which brings its own.
            ema_decay: float below 1, or None for no averages. The averages are
                in `model.averages`; callbacks evaluate and archive them.
            gradient_multipliers: dict of regular expressions to factors above 0,
                such as `{"bias$": 2.0}`. The gradient of a variable in whose `path`
                an expression is found, the first that is, is multiplied by its
                factor, before clipping.
            freeze: what must not train; see `freeze`. None leaves it as it is.
            freeze_batch_norm: bool, `batch_norm` of `freeze`.
            jit_compile: bool or "auto": XLA only where it pays. On a CPU it
                makes depthwise convolutions many times slower. On TensorFlow an
                XLA step cannot refuse a batch whose loss is not finite: add
                `keras.callbacks.TerminateOnNaN()`.
            run_eagerly, steps_per_execution, auto_scale_loss: see
                `keras.Model.compile`.

        Raises:
            ValueError, TypeError: If arguments are wrong or contradict.
        """
        recipe = Recipe(
            optimizer=optimizer,
            loss=loss,
            schedule=schedule,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            clip_norm=clip_norm,
            ema_decay=ema_decay,
            gradient_multipliers=gradient_multipliers,
        )
        if freeze is not None:
            freezing.freeze(self, freeze, freeze_batch_norm)
        factors = gradient_factors(gradient_multipliers, self.trainable_variables)
        optimizer = recipe.new_optimizer()
        if not self._reports_steps and recipe.clips_in_optimizer:
            optimizer.global_clipnorm = recipe.clip_norm or None
        super().compile(
            optimizer=optimizer,
            loss=None,  # `compute_loss` below
            jit_compile=self.default_jit_compile()
            if jit_compile == "auto"
            else jit_compile,
            run_eagerly=run_eagerly,
            steps_per_execution=steps_per_execution,
            auto_scale_loss=auto_scale_loss,
        )
        # Built here, so that loading weights finds the optimizer's variables, and
        # the first step, which would make them, is not traced a second time.
        self.optimizer.build(self.trainable_variables)
        self._recipe = recipe
        # None, and no work in the step, where nothing is multiplied.
        self._gradient_factors = factors if gradient_multipliers else None
        self._trackers = _Trackers(recipe.loss.iou_loss_type is not None)
        self._compile_options = {
            "jit_compile": jit_compile,
            "run_eagerly": run_eagerly,
            "steps_per_execution": steps_per_execution,
            "auto_scale_loss": auto_scale_loss,
        }
        self.averages = None
        if recipe.ema_decay:
            sources = self.trainable_variables + self.batch_norm_statistics()
            self.averages = WeightAverages(sources, decay=recipe.ema_decay)

    def get_compile_config(self):
        if self._recipe is None:
            return {}
        return {
            "recipe": self._recipe.get_config(),
            "frozen": freezing.frozen_state(self),
            **self._compile_options,
        }

    def compile_from_config(self, config):
        options = dict(config)
        if "frozen" in options:  # not in files of before there was freezing
            freezing.restore_frozen(self, options.pop("frozen"))
        recipe = Recipe.from_config(options.pop("recipe"))
        fields = {name: getattr(recipe, name) for name in recipe.__dataclass_fields__}
        self.compile(**fields, **options)

    def freeze(self, what, batch_norm=True):
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
            >>> from effdet_keras.models import EfficientDet
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2
            ... )
            >>> model.freeze("backbone+fpn")
            >>> len(model.trainable_variables) < len(model.weights) / 3
            True
        """
        self._require_restored("freeze")
        before = freezing.frozen_state(self)
        freezing.freeze(self, what, batch_norm)
        try:
            self._compile_again()
        except ValueError:  # such as a gradient multiplier that is for nothing now
            freezing.restore_frozen(self, before)
            raise

    def unfreeze(self):
        """Lets all weights train again; see `freeze`."""
        self._require_restored("unfreeze")
        freezing.unfreeze(self)
        self._compile_again()

    def _require_restored(self, caller):
        if self.averages is not None:
            self.averages.require_restored(caller)

    def _compile_again(self):
        if self._recipe is not None:
            self.compile_from_config(self.get_compile_config())

    @property
    def metrics(self):
        metrics = super().metrics
        if self._trackers is None:
            return metrics
        steps = self._trackers.steps.values() if self._reports_steps else ()
        return [*metrics, *self._trackers.losses.values(), *steps]

    def batch_norm_statistics(self):
        """The moving means and variances of all batch norms."""
        return [
            v for v in self.non_trainable_variables if v.name in freezing.STATISTICS
        ]

    def save_own_variables(self, store):
        """Saves the moving averages beside the weights."""
        if self.averages is not None:
            sources, averages = self.averages.sources, self.averages.variables
            for source, average in zip(sources, averages):
                store[_average_key(source)] = ops.convert_to_numpy(average)

    def load_own_variables(self, store):
        """Loads the moving averages where both file and model have them."""
        names = store.keys()  # the store of a `.weights.h5` is no dict
        keys = [name for name in names if name.startswith(_AVERAGE_PREFIX)]
        self._loaded_averages = bool(keys) and self.averages is not None
        if not self._loaded_averages:
            return
        expected = {_average_key(source) for source in self.averages.sources}
        if expected != set(keys):
            raise InvalidValueError(
                f"The file holds {len(keys)} moving averages, this model "
                f"{len(expected)}: it was compiled with other trainable weights. "
                "Compile it as it was when the file was written."
            )
        for source, average in zip(self.averages.sources, self.averages.variables):
            average.assign(store[_average_key(source)])

    def load_weights(self, filepath, skip_mismatch=False, **kwargs):
        """Loads weights as Keras does; averages that the file lacks start anew.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If its weights are of other shapes than the model's, for
                instance of another `num_classes`, and `skip_mismatch` is False.
        """
        self._loaded_averages = False
        if self.averages is not None:
            self.averages.restore()
        try:
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
        if self.averages is not None and not self._loaded_averages:
            self.averages.reset()


def _average_key(variable):
    return _AVERAGE_PREFIX + variable.path.replace("/", ":")
