"""TensorFlow checkpoints of google/automl, in each of their formats."""

from __future__ import annotations

import contextlib
import os
import re

import numpy as np

from effdet_keras._internal.optional_imports import tensorflow as tf
from effdet_keras._internal.remote_path import WholeFileError
from effdet_keras.errors import InvalidValueError, require
from effdet_keras.weights.network_arrays import (
    TF1,
    Kind,
    Scheme,
    WeightSource,
    both_heads,
    under,
)

OBJECT_GRAPH = Scheme(  # the objects of the model that tf2/train.py saves
    {
        "stem_conv": "backbone/_stem/_conv_stem",
        "stem_bn": "backbone/_stem/_bn",
        **under(
            "backbone/_blocks/{block}",
            expand_conv="/_expand_conv",
            expand_bn="/_bn0",
            depthwise_conv="/_depthwise_conv",
            depthwise_bn="/_bn1",
            se_reduce="/_se/_se_reduce",
            se_expand="/_se/_se_expand",
            project_conv="/_project_conv",
            project_bn="/_bn{norm}",
            fused_conv="/_expand_conv",
            fused_bn="/_bn0",
            single_conv="/_project_conv",
            single_bn="/_bn0",
        ),
        **under("resample_layers/{extra}", level_conv="/conv2d", level_bn="/bn"),
        **under(
            "fpn_cells/cells/{cell}/fnodes/{node}",
            edge_conv="/resample_layers/{edge}/conv2d",
            edge_bn="/resample_layers/{edge}/bn",
            fusion="",
            node_conv="/op_after_combine/conv_op",
            node_bn="/op_after_combine/bn",
        ),
        **both_heads(
            "{head}_net", conv="/conv_ops/{repeat}", bn="/bns/{repeat}/{step}"
        ),
        "class_predict": "class_net/classes",
        "box_predict": "box_net/boxes",
        **under(
            "seg_head",
            segmentation_conv="/con2d_ts/{step}",
            segmentation_bn="/con2d_t_bns/{step}",
            segmentation_predict="/head_transpose",
        ),
    },
)

_NO_RAW = (
    "the file has no raw weights: its variables already are the moving averages, as "
    "in the `emackpt-*` files of google/automl's tf2"
)
AVERAGE = "/ExponentialMovingAverage"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_SLOT = "/.OPTIMIZER_SLOT/"
STATE_FILE = "checkpoint"  # names the latest checkpoint of a folder
_OPTIMIZER_NAME = re.compile(r"(^|/)\w*optimizer\w*/")

# google/automl's trainer of a hub module stores variables in a dict. In its keys, "/"
# is written as ".S".
_HUB_PARTS = (
    ("base_model/", ""),
    ("classes/", "class_net/class-predict/"),
    ("boxes/", "box_net/box-predict/"),
)


def read_tensorflow_checkpoint(prefix, averages=True):
    """Reads a checkpoint as a `WeightSource`; moving averages replace raw weights.

    `averages=False` takes the raw weights instead.
    """
    tf.require("Reading TensorFlow checkpoints")
    prefix = os.fspath(prefix)
    with naming_damage(prefix):
        reader = tf.train.load_checkpoint(prefix)
        dtypes = reader.get_variable_to_dtype_map()
    floats = sorted(key for key, dtype in dtypes.items() if dtype.is_floating)
    kind, scheme, raw, average = _entries(floats)
    rule = f"'{prefix}' contains only moving averages: read it with `averages=True`"
    require(averages or raw or not average, rule, WholeFileError, averages=averages)
    has_no_raw = not averages and _averages_twice(prefix, reader, raw, average)
    average = average if averages else {}
    wanted = {**raw, **average}
    names = published_names(wanted, scheme, prefix)
    with naming_damage(prefix):
        arrays = {name: reader.get_tensor(wanted[name]) for name in wanted}
    return WeightSource(
        path=prefix,
        kind=kind,
        scheme=scheme,
        arrays={names[name]: array for name, array in arrays.items()},
        num_averages=len(average),
        others=tuple(sorted(set(dtypes) - {*raw.values(), *average.values()})),
        notes=(_NO_RAW,) if has_no_raw else (),
    )


def _averages_twice(prefix, reader, raw, average):
    """Returns whether an object graph's variables equal its optimizer's averages."""
    both = [name for name, key in average.items() if name in raw and _SLOT in key]
    with naming_damage(prefix):
        return bool(both) and all(
            np.array_equal(reader.get_tensor(raw[n]), reader.get_tensor(average[n]))
            for n in both
        )


def read_raw_arrays(prefix, averages=True):
    """Reads the float arrays of any checkpoint, by their names in the checkpoint."""
    tf.require("Reading TensorFlow checkpoints")
    prefix = os.fspath(prefix)
    with naming_damage(prefix):
        reader = tf.train.load_checkpoint(prefix)
        dtypes = reader.get_variable_to_dtype_map()
        floats = sorted(key for key, dtype in dtypes.items() if dtype.is_floating)
        _, _, raw, average = _entries(floats)
        wanted = {**raw, **(average if averages else {})}
        return {name: reader.get_tensor(key) for name, key in wanted.items()}


@contextlib.contextmanager
def naming_damage(prefix):
    """Turns the exceptions of TensorFlow for damaged files into a `ValueError`."""
    try:
        yield
    except Exception as error:  # damaged files can cause almost any exception
        data = f"{prefix}.data-?????-of-?????"
        raise InvalidValueError(
            f"The TensorFlow checkpoint '{prefix}' is damaged or incomplete ({error}). "
            f"It needs '{prefix}.index' and all files '{data}' of the same checkpoint: "
            "download or copy them again."
        ) from error


def _entries(keys):
    """Returns kind, scheme, and the keys of raw values and of averages by variable."""
    if not any(key.endswith(_VALUE) for key in keys):
        return "TensorFlow checkpoint with TF1 names", TF1, *_tf1_entries(keys)
    raw, average = _graph_entries(keys)
    if any(".S" in name for name in raw):
        raw, average = _hub_names(raw), _hub_names(average)
        return "TensorFlow checkpoint of a hub module's trainer", TF1, raw, average
    return "TensorFlow checkpoint of a Keras model", OBJECT_GRAPH, raw, average


def _tf1_entries(keys):
    average = {k.removesuffix(AVERAGE): k for k in keys if k.endswith(AVERAGE)}
    variables = {*keys, *average}
    # An optimizer slot is named `<variable>/<slot>`; optimizer counters have no scope.
    raw = {
        key: key
        for key in keys
        if "/" in key and key.rpartition("/")[0] not in variables
    }
    return raw, average


def _graph_entries(keys):
    raw, average = {}, {}
    for key in keys:
        name, _, slot = key.removesuffix(_VALUE).partition(_SLOT)
        if slot.split("/")[-1] == "average":
            average[name] = key
        elif not slot and not _OPTIMIZER_NAME.search(name):
            raw[name] = key
    return raw, average


def _hub_names(entries):
    names = {}
    for name, key in entries.items():
        for part, scope in _HUB_PARTS:
            if name.startswith(part):
                name = scope + name.removeprefix(part)
                break
        names[name.replace(".S", "/").removesuffix(":0")] = key
    return names


def _is_of(path, head):
    return path.with_name(f"{path.name}.index").exists()


KIND = Kind(
    title="google/automl's TF1 or tf2 (object graph) checkpoint, `name.index` and "
    "`name.data-...`, in a folder or named without the ending",
    is_of=_is_of,
    read=read_tensorflow_checkpoint,
)


# --- Conversion of names in google/automl's files to those of published checkpoints.

# The start of an array's name in each scheme.
_ROOTS = {
    TF1: r"efficientnet(v2)?-[\w-]+/|resample_p\d+/|fpn_cells/|(class|box)_net/"
    r"|segmentation_head/",
    OBJECT_GRAPH: r"backbone/_|resample_layers/|fpn_cells/|(class|box)_net/|seg_head/",
}

# The layers of the stem have no explicit names. In the second model that a process
# builds, their numbers continue, as in "stem_1/conv2d_1/kernel".
_STEM = re.compile(
    r"^(efficientnet(?:v2)?-[\w-]+/stem)(?:_\d+)?/(conv2d|tpu_batch_normalization)(?:_\d+)?/"
)


def published_names(names, scheme, path):
    """Returns a dict from each name to the one in published checkpoints."""
    root = re.compile(rf"(?:^|/)(?={_ROOTS[scheme]})")
    prefixes = {name[: match.end()] for name in names if (match := root.search(name))}
    if not prefixes:
        raise WholeFileError(
            f"'{path}' contains the weights of another network: none of its "
            f"{len(names)} arrays has a name of EfficientDet or EfficientNet. "
            f"Received: {sorted(names)[:3]}"
        )
    prefix = min(prefixes)
    published = {
        name: _STEM.sub(r"\1/\2/", name.removeprefix(prefix)) for name in names
    }
    is_one = prefix == "" or len(prefixes) == 1
    if not is_one or len(set(published.values())) < len(published):
        raise WholeFileError(
            f"'{path}' contains several networks, and it is not clear which of them to "
            "read: save the one you want in a file of its own. Received: arrays such "
            f"as {sorted(names)[:2]}"
        )
    return published
