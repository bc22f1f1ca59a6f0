"""The contract that every layer keeps: call `check_layer` for it."""

import keras
import numpy as np
from keras import ops

POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")


def check_layer(make, inputs, *, changed):
    """Checks config, shapes, dtypes and free batch sizes of a layer.

    Args:
        make: callable `(**kwargs) -> layer`.
        inputs: array or list of arrays, a batch of two or more.
        changed: dict of constructor arguments, each at a value other than the
            default: all of them must be in `get_config` and survive it.
    """
    _check_config(make, changed)
    _check_shapes_and_batches(make(), inputs)
    for policy in POLICIES:
        _check_dtype(make(dtype=policy), inputs, policy)


def _check_config(make, changed):
    layer = make(**changed)
    config = layer.get_config()
    for name in changed:
        assert name in config, f"{name} is missing from get_config"
    again = type(layer).from_config(config)
    assert again.get_config() == config
    default = make().get_config()
    for name in changed:
        assert config[name] != default[name], f"{name} is at its default"


def _check_shapes_and_batches(layer, inputs):
    outputs = keras.tree.flatten(layer(inputs))
    shapes = keras.tree.map_structure(lambda x: tuple(x.shape), inputs)
    declared = layer.compute_output_shape(shapes)
    declared = [declared] if isinstance(declared, tuple) else declared
    assert [tuple(x.shape) for x in outputs] == [tuple(s) for s in declared]
    symbolic = layer(
        keras.tree.map_structure(lambda x: keras.Input(x.shape[1:]), inputs)
    )
    for x, out in zip(keras.tree.flatten(symbolic), outputs):
        assert x.shape == (None, *out.shape[1:])
    one = layer(keras.tree.map_structure(lambda x: x[:1], inputs))
    for single, batch in zip(keras.tree.flatten(one), outputs):
        # Convolutions of another batch size may add in another order.
        np.testing.assert_allclose(
            ops.convert_to_numpy(single),
            ops.convert_to_numpy(batch)[:1],
            rtol=1e-4,
            atol=1e-5,
        )


def _check_dtype(layer, inputs, policy):
    outputs = keras.tree.flatten(layer(inputs))
    allowed = {keras.DTypePolicy(policy).compute_dtype, "float32"}
    for x in outputs:
        assert keras.backend.standardize_dtype(x.dtype) in allowed
        assert np.isfinite(ops.convert_to_numpy(ops.cast(x, "float32"))).all()
    for weight in layer.weights:
        if keras.backend.is_float_dtype(weight.dtype):
            assert weight.dtype == "float32"
