"""What a model gives for a batch, on the devices of this process alone, on JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from effdet_keras._internal.processes import alone

_AXIS = "batch"


class LocalPrediction:
    """Runs the forward pass on the devices of this process alone.

    Keras' own `predict_on_batch` would have all processes detect in the same batch.
    Every process has a whole copy of the weights, which is used without copying.
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
