"""The training step on JAX: gradients, clipping, update and averages, as state."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import keras
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from keras import ops

from effdet_keras._internal.processes import alone
from effdet_keras.errors import InvalidValueError
from effdet_keras.model.basic_layers import recomputing
from effdet_keras.train.gradients import clipped
from effdet_keras.train.parts import joined, parted, step_counter, steps_per_update

# What Keras calls the parts of the state that it hands through a step.
_STATE = (
    *("trainable_variables", "non_trainable_variables"),
    *("optimizer_variables", "metrics_variables"),
)


class Step:
    """`BackendStep` of JAX.

    The averages travel with the variables of the metrics, which Keras hands
    through its compiled steps.
    """

    is_given_batches = False

    def __init__(self, model):
        self._model = model
        # Of the model itself, and of the last other one that ran it.
        self._local = {}

    def train(self, keras_step, state, data):
        step = self._steps_in(state)
        loss, gradients, non_trainable, metrics = self._gradients(state, data)
        new_state, logs = self._updated(
            (state[0], non_trainable, state[2], metrics), loss, gradients, step
        )
        new_state = self._with_settled_statistics(state, new_state, step)
        new_state = self._with_averages(new_state, step)
        # A step that is not finite moves nothing; `watched` sees it by its loss.
        trainable, non_trainable, _, _ = new_state
        sums = [ops.sum(ops.cast(x, "float32")) for x in (*trainable, *non_trainable)]
        is_fine = ops.all(ops.isfinite(ops.stack([logs["loss"], *sums])))
        logs = {**logs, "loss": ops.where(is_fine, logs["loss"], float("nan"))}
        return logs, jax.tree.map(
            lambda a, b: ops.where(is_fine, a, b), new_state, state
        )

    def _gradients(self, state, data):
        """Forward and backward pass, as Keras has them."""
        trainable, non_trainable, optimizer, metrics = state
        images, truth, weight = keras.utils.unpack_x_y_sample_weight(data)
        differentiated = jax.value_and_grad(
            self._model.compute_loss_and_updates, has_aux=True
        )
        with recomputing(self._model.settings.recipe.grad_checkpoint):
            (_, others), gradients = differentiated(
                *(trainable, non_trainable, metrics, images, truth, weight),
                training=True,
                optimizer_variables=optimizer,
            )
        loss, _, non_trainable, metrics = others
        return loss, gradients, non_trainable, metrics

    def _updated(self, state, loss, gradients, step):
        """The state after the optimizer's update by clipped gradients; and the logs."""
        model = self._model
        optimizer, settings = model.optimizer, model.settings
        trainable, non_trainable, optimizer_values, metrics = state
        mapping = [
            *zip(optimizer.variables, optimizer_values),
            *zip(model.metrics_variables, metrics),
        ]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            scale = optimizer.scale_loss(ops.ones(()))
            mean, parts = gradients, model.parts.values()
            for part in parts:
                mean = part.together(mean, scale)
            whole, norm = clipped(
                mean,
                settings.recipe.clip_norm,
                each=settings.recipe.clips_each,
                scale=scale,
            )
            for part in parts:
                whole = part.for_optimizer(
                    gradients, whole, step=step, is_fine=ops.isfinite(norm)
                )
            model._loss_tracker.update_state(loss)
            settings.trackers.update_step(norm, optimizer.learning_rate)
            logs = model.get_metrics_result()
        trainable, optimizer_values = optimizer.stateless_apply(
            [scope.get_current_value(v) for v in optimizer.variables],
            whole,
            trainable,
        )
        metrics = [scope.get_current_value(v) for v in model.metrics_variables]
        return (trainable, non_trainable, optimizer_values, metrics), logs

    def test(self, keras_step, state, data):
        logs, state = keras_step(state, data)
        return self._model.settings.trackers.without_steps(logs), state

    def predict(self, keras_step, state, data):
        outputs, state = keras_step(state, data)
        return self._model.detect_outputs(outputs), state

    def predict_on_batch(self, keras_predict, model, inputs):
        if keras.distribution.distribution() is None:
            return keras_predict(inputs)
        is_own = model is self._model
        if is_own not in self._local or self._local[is_own].model is not model:
            self._local[is_own] = LocalPrediction(model)
        return self._local[is_own](inputs)

    def checked_loss(self, loss, truth, training):
        return loss  # see `watched`

    def making_function(self):
        return contextlib.nullcontext()

    def watched(self, train_function):
        """The function, except that an error in a step leaves the model whole.

        For a step Keras takes the values out of the variables; where the first
        one fails, on wrong ground truth for example, it does not put them back. A
        loss that is not finite is such an error.
        """
        model = self._model

        def watched(state, iterator):
            batches = _Remembering(iterator)
            try:
                logs, new_state = train_function(state, batches)
            except BaseException:
                self._put_back(state)
                raise
            if not np.isfinite(logs["loss"]):
                self._put_back(new_state)
                step = int(self._steps_in(new_state)) + 1
                truth = jax.tree.map(local_part, batches.last[1])
                raise model.refusal(truth, step=step)
            return logs, new_state

        return watched

    def skipped(self, logs, state, iterator):
        return logs, state

    def scope(self):
        return contextlib.nullcontext()

    def data_of_fit(self, data):
        is_shared_out = keras.distribution.distribution() is not None
        if not is_shared_out or not hasattr(data, "element_spec"):
            return data
        size = keras.tree.flatten(data.element_spec)[0].shape[0]
        count = jax.local_device_count()
        if size is not None and size % count:
            raise InvalidValueError(
                f"Each of the {count} devices of a process trains on as many images. "
                f"Received: batches of {size} images per process"
            )
        return data

    def normalizer(self, num_positives, rule):
        return None

    def predicting(self, predict_function):
        return predict_function

    def carried_variables(self):
        averages, parts = self._model.averages, self._model.parts.values()
        return [
            *([] if averages is None else averages.variables),
            *(variable for part in parts for variable in part.carried),
        ]

    def scaling_gradients(self, values):
        factors = self._model.settings.gradient_factors
        if factors is None:
            return values
        pairs = zip(values, factors, strict=True)
        return [_with_gradient_times(f, v) for v, f in pairs]

    def _put_back(self, state):
        """Gives Keras the state that it puts into the variables at the end."""
        self._model._jax_state = dict(zip(_STATE, state))
        self._model._jax_state_synced = False
        self._model.jax_state_sync()

    def _steps_in(self, state):
        """The steps that the optimizer has counted in a state."""
        optimizer = self._model.optimizer
        variable = step_counter(optimizer)
        _, _, optimizer_values, _ = state
        return optimizer_values[
            [v is variable for v in optimizer.variables].index(True)
        ]

    def _with_settled_statistics(self, state, new_state, step):
        if "statistics_warmup" not in self._model.parts:
            return new_state
        trainable, values, optimizer, metrics = new_state
        statistics = {id(v) for v in self._model.batch_norm_statistics()}
        variables = self._model.non_trainable_variables
        places = [i for i, v in enumerate(variables) if id(v) in statistics]
        before, settled = (joined([x[i] for i in places]) for x in (state[1], values))
        for part in self._model.parts.values():
            settled = part.settled(before, settled, step)
        values = list(values)
        lengths = [values[i].shape[0] for i in places]
        for i, value in zip(places, parted(settled, lengths)):
            values[i] = value
        return trainable, values, optimizer, metrics

    def _with_averages(self, state, step):
        model = self._model
        if model.averages is None:
            return state
        count = steps_per_update(model.optimizer)
        has_moved = self._steps_in(state) // count > step // count
        trainable, non_trainable, optimizer, metrics = state
        mapping = [
            *zip(model.trainable_variables, trainable),
            *zip(model.non_trainable_variables, non_trainable),
            *zip(model.metrics_variables, metrics),
        ]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            model.averages.update(step // count, has_moved)
        metrics = [scope.get_current_value(v) for v in model.metrics_variables]
        return trainable, non_trainable, optimizer, metrics


def _with_gradient_times(factor, value):
    """`value` itself, through which a gradient passes multiplied."""
    if factor == 1.0:
        return value
    fixed = jax.lax.stop_gradient(value)
    return fixed + factor * (value - fixed)


class _Remembering:
    """An iterator that keeps the last batch it gave."""

    def __init__(self, iterator):
        self._iterator = iterator
        self.last = None

    def __iter__(self):
        return self

    def __next__(self):
        self.last = next(self._iterator)
        return self.last


# --- What a model gives for a batch, on the devices of this process alone, on JAX.

_AXIS = "batch"


class LocalPrediction:
    """Runs the forward pass of a model whose weights lie on devices of all processes.

    Keras' own `predict_on_batch` would have all processes detect in the same batch, and
    fails on outputs that lie elsewhere. Every process has a whole copy of the weights:
    this one uses it as it is, without copying, and shares the batch out among the
    devices of this process.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._function = None
        self._made_for: tuple[Any, ...] = ()

    def __call__(self, inputs: Any) -> Any:
        """Returns the outputs of `predict_step`, as NumPy arrays."""
        model = self.model
        mesh = Mesh(np.array(jax.local_devices()), (_AXIS,))
        copied = NamedSharding(mesh, PartitionSpec())
        shared_out = NamedSharding(mesh, PartitionSpec(_AXIS))
        state = tuple(
            [_local_copy(v.value, copied) for v in variables]
            for variables in (model.trainable_variables, model.non_trainable_variables)
        )
        rows = len(jax.tree.leaves(inputs)[0])
        inputs = jax.tree.map(
            lambda x: jax.device_put(_filled_up(x, mesh.size), shared_out), inputs
        )
        with alone():
            outputs = self._compiled()(state, inputs)
        return jax.tree.map(lambda x: np.array(x)[:rows], outputs)

    def _compiled(self):
        model = self.model
        made_for = (
            *(getattr(model, "postprocess", None), model.jit_compile),
            model.run_eagerly,
        )
        if self._function is None or made_for != self._made_for:

            def predict(state, inputs):
                outputs, _ = model.predict_step(state, (inputs,))
                return outputs

            compiles = model.jit_compile and not model.run_eagerly
            self._function = jax.jit(predict) if compiles else predict
            self._made_for = made_for
        return self._function


def local_part(array: Any) -> Any:
    """The rows of a batch that this process gave, as a NumPy array."""
    if not isinstance(array, jax.Array) or array.is_fully_addressable:
        return np.asarray(array)
    if array.is_fully_replicated:
        return np.asarray(array.addressable_data(0))
    parts = {
        shard.index[0].start or 0: shard.data for shard in array.addressable_shards
    }
    return np.concatenate([np.asarray(parts[start]) for start in sorted(parts)])


def _local_copy(array, sharding):
    """A weight on each device of this process, as one array that ends there."""
    parts = {shard.device: shard.data for shard in array.addressable_shards}
    devices = list(sharding.mesh.devices.flat)
    if not array.is_fully_replicated or not set(devices) <= set(parts):
        return jax.device_put(np.asarray(array), sharding)
    return jax.make_array_from_single_device_arrays(
        array.shape, sharding, [parts[device] for device in devices]
    )


def _filled_up(array, multiple):
    """An array with rows of zeros behind its own, as many as devices need."""
    array = np.asarray(array)
    missing = -len(array) % multiple
    return np.pad(array, [(0, missing)] + [(0, 0)] * (array.ndim - 1))
