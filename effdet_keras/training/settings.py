"""Training that is the same on every backend: losses, checks, `fit`, `evaluate`."""

import contextlib

import keras
from keras import ops

from effdet_keras.errors import InvalidValueError, NonFiniteLossError
from effdet_keras.geometry.matching import match_anchors
from effdet_keras.training import inputs
from effdet_keras.training import truth as truth_rules
from effdet_keras.training.compiling import Compiling


class BaseTrainer(Compiling):
    """Mix-in of `keras.Model`: what training needs, without naming a backend.

    The class that mixes it in offers `anchors`, `config` and `postprocess`.
    """

    _reader = None  # of the data in use, for the names of its images
    _error = None  # what stopped a step, where the backend hides it in its own error

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """The detection losses and weight decay, from truth and network outputs.

        NaN where the truth is wrong (`training/truth.py`): the step then refuses
        the batch, as it does every loss that is not finite.

        Args:
            x: unused.
            y: dict with `boxes` `[B, M, 4]` (`yxyx`, pixels of the input) and
                `labels` `[B, M]` (-1 is padding). More keys are ignored.
            y_pred: outputs of the network, see `EfficientDet`.
            sample_weight: must be None.
            training: unused.

        Returns:
            Float32 scalar.
        """
        inputs.check_truth(y, sample_weight)
        is_valid = truth_rules.is_valid(
            y["boxes"], y["labels"], self.config.image_size, self.config.num_classes
        )
        class_targets, box_targets = match_anchors(
            y["boxes"], y["labels"], self.anchors
        )
        terms = self._recipe.loss(
            class_targets,
            box_targets,
            y_pred["class_logits"],
            y_pred["box_deltas"],
            self.anchors,
        )
        terms["reg_l2_loss"] = self._weight_decay_loss()
        for name, tracker in self._trackers.losses.items():
            tracker.update_state(terms[name])
        loss = terms["loss"] + terms["reg_l2_loss"]
        return ops.where(is_valid, loss, float("nan"))

    def non_finite_loss(self, truth, *, step=None):
        """The error for a batch whose loss is NaN or infinite.

        Args:
            truth: the batch's truth, of arrays.
            step: int, which training step it is, from 1; None in evaluation.

        Returns:
            ValueError if the truth is wrong, else FloatingPointError.
        """
        fault = truth_rules.explain(
            truth["boxes"],
            truth["labels"],
            self.config.image_size,
            self.config.num_classes,
        )
        where = "an evaluation step" if step is None else f"training step {step}"
        batch = f"The batch of {where} {self._names(truth.get('image_id'))}"
        if fault is not None:
            return InvalidValueError(
                f"{fault}. {batch}. The weights are those before it."
            )
        return NonFiniteLossError(
            f"The loss is not finite. {batch}. The weights are those before it, so "
            "the model can still be saved. Usual causes: a learning rate too high for "
            "the batch size, no `clip_norm`, float16 where bfloat16 would hold the "
            "values, or pixels that are not finite."
        )

    @property
    def _loss_scale(self):
        """The variable of a float16 optimizer's loss scale, else None.

        Such an optimizer skips a step that overflows and halves its scale: an
        error is only what it cannot mend, with a scale that has come down to 1.
        """
        if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            return self.optimizer.dynamic_scale
        return None

    def _names(self, image_ids):
        if image_ids is None:
            return "names no images (its truth has no 'image_id')"
        ids = ops.convert_to_numpy(image_ids).reshape(-1).tolist()
        if self._reader is not None:
            return f"has the images {', '.join(map(self._reader.name_of, ids))}"
        return f"has the images with `image_id` {', '.join(map(str, ids))}"

    def _weight_decay_loss(self):
        kernels = [v for v in self.trainable_variables if v.name.endswith("kernel")]
        if not self._recipe.l2_decay or not kernels:
            return ops.zeros(())
        squares = [ops.sum(ops.square(ops.cast(v, "float32"))) for v in kernels]
        return self._recipe.l2_decay / 2 * ops.sum(ops.stack(squares))

    def batches(self, dataset, batch_size=8, *, training=False, **options):
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
        }
        dataset = self._in_own_labels(dataset)
        return dataset.batches(batch_size, training=training, **{**sizes, **options})

    def _in_own_labels(self, dataset):
        names = self.class_names
        if names is None or not set(dataset.class_names) <= set(names):
            return dataset  # `inputs.check_data` says what is wrong, if it is
        return dataset.with_classes(names, self.category_ids)

    def fit(self, x=None, y=None, batch_size=None, epochs=1, **kwargs):
        """Trains. All arguments of `keras.Model.fit`, and datasets of our own.

        Args:
            x: batches of `(images, {"boxes", "labels"})` in any form that Keras
                takes; or a `DetectionDataset`, which is then batched in this
                model's `image_size`, with augmentation.
            y: truth, where `x` is an array of images.
            batch_size: int, for arrays (default 32) and datasets (default 8).
            epochs: int.
            **kwargs: of `keras.Model.fit`. `validation_data` may be a
                `DetectionDataset` as well.

        Returns:
            `keras.callbacks.History`.

        Raises:
            ValueError: If the data is empty, not in batches, of another image size
                or of other classes than the model, or a batch's truth is wrong.
            FloatingPointError: If a loss is NaN or infinite; the message names
                the step and the images, and the weights are those before it.
        """
        x, own_batch_size = self._batched(x, batch_size, training=True)
        if "validation_data" in kwargs:
            kwargs["validation_data"], _ = self._batched(
                kwargs["validation_data"], batch_size, training=False
            )
        batch_size = None if own_batch_size else batch_size
        inputs.check_data(self, x, y)
        if "validation_data" in kwargs:
            inputs.check_validation_data(self, kwargs["validation_data"])
        if hasattr(x, "element_spec"):
            kwargs.setdefault("shuffle", False)  # Keras warns that it cannot
        if self.averages is not None:
            self.averages.restore()  # training never goes on from swapped weights
        if self._recipe is not None and self._recipe.needs_length:
            self._set_schedule(x, batch_size, epochs, kwargs)
        with self._running_on(x):
            return super().fit(x, y, batch_size=batch_size, epochs=epochs, **kwargs)

    def evaluate(self, x=None, y=None, batch_size=None, **kwargs):
        """Losses on labelled data. `x` may be a `DetectionDataset`; see `fit`.

        For COCO's numbers see `effdet_keras.callbacks.COCOEvaluation`.
        """
        x, own_batch_size = self._batched(x, batch_size, training=False)
        batch_size = None if own_batch_size else batch_size
        inputs.check_data(self, x, y)
        with self._running_on(x):
            return super().evaluate(x, y, batch_size=batch_size, **kwargs)

    @contextlib.contextmanager
    def _running_on(self, data):
        """What surrounds a run: its errors made plain, a swap inside it undone."""
        was_swapped = self.averages is not None and self.averages.is_swapped
        outer_reader, self._reader = self._reader, getattr(data, "reader", None)
        self._error = None
        if self._reader is not None:
            self._reader.error = None
        try:
            yield
        except Exception as error:
            plain = self._error or (self._reader and self._reader.error)
            if plain is None or plain is error:
                raise
            raise plain from None
        finally:
            self._reader = outer_reader
            # A callback may have swapped, and an error kept it from swapping back.
            if self.averages is not None and not was_swapped:
                self.averages.restore()

    def _batched(self, data, batch_size, training):
        """A `DetectionDataset` as batches for this model; else `data` as it is."""
        if not hasattr(data, "category_ids"):
            return data, False
        return self.batches(data, batch_size or 8, training=training), True

    def _set_schedule(self, x, batch_size, epochs, kwargs):
        batch_size, steps = inputs.batch_size_and_steps(
            x, batch_size, kwargs.get("steps_per_epoch")
        )
        done = int(ops.convert_to_numpy(self.optimizer.iterations))
        remaining = (epochs - kwargs.get("initial_epoch", 0)) * steps
        self.optimizer.learning_rate = self._recipe.resolve_schedule(
            batch_size=batch_size,
            steps_per_epoch=steps,
            epochs=max(done + remaining, 1) / steps,
        )
        self.train_function = None  # its trace holds the schedule of before
