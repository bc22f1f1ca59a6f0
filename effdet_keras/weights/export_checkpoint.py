"""From a model to a file of weights in the format of an older tool."""

import numpy as np
from keras import ops

from effdet_keras.errors import InvalidValueError
from effdet_keras.model.config import EfficientDetConfig
from effdet_keras.weights.kinds.automl import write_tf1_checkpoint
from effdet_keras.weights.kinds.torch_effdet import write_torch_effdet
from effdet_keras.weights.network_arrays import tf1_name

EXPORT_FORMATS = ("automl-tf1", "torch-effdet")


def export_checkpoint(model, path, format):
    """`EfficientDet.export_checkpoint`; see there."""
    if format not in EXPORT_FORMATS:
        raise InvalidValueError(
            f"`format` must be one of {', '.join(EXPORT_FORMATS)}. "
            f"Received: format={format!r}"
        )
    check_own_network(model, "write an older tool's checkpoint", "export_hub_module")
    _check_has_place(model.config)
    raw, averaged = _raw_and_averaged(model)
    if format == "torch-effdet":
        write_torch_effdet(path, averaged, model.config)
        return
    step = getattr(getattr(model, "optimizer", None), "iterations", 0)
    write_tf1_checkpoint(
        path, raw, averages=averaged, global_step=int(ops.convert_to_numpy(step))
    )


def _check_has_place(config):
    """Raises ValueError for what no older tool of these formats has."""
    usual = EfficientDetConfig()
    for field in ("backbone_taps", "anchor_order", "box_scales"):
        if getattr(config, field) != getattr(usual, field):
            raise InvalidValueError(
                "Neither google/automl nor PyTorch effdet has a network with "
                f"{field}={getattr(config, field)!r}: it would detect something else "
                "there. Keep such a model with `save`, or `export` it."
            )


def _raw_and_averaged(model):
    """The weights of training, and those with averages where there are any."""
    averages = model.averages
    if averages is None:
        raw = _named(model.weights, model.weights)
        return raw, dict(raw)
    with averages.swapped():
        averaged = _named(model.weights, model.weights)
        raw = {**averaged, **_named(averages.sources, averages.variables)}
        exact = averages.exact  # of weights that hold their average only rounded
        coarse = [averages.sources[i] for i in exact]
        return raw, {**averaged, **_named(coarse, exact.values())}


def _named(variables, values):
    # Copies: arrays may share their memory with variables that are about to change.
    pairs = zip(variables, values)
    return {tf1_name(v): np.array(ops.convert_to_numpy(a)) for v, a in pairs}


def check_own_network(model, what, instead):
    """Raises ValueError where a model computes with the graph of a TF-Hub module."""
    if model.features is not None:
        raise InvalidValueError(
            "The model computes with the graph of a TF-Hub module, whose weights have "
            f"other names than EfficientDet's: it cannot {what}. Use `{instead}`."
        )
