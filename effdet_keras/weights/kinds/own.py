"""The files that this package's models write: `.weights.h5` and `.keras`."""

import io
import os
import types
import zipfile

import h5py

from effdet_keras._internal.remote_path import WholeFileError
from effdet_keras._internal.unpacking import UnpackedSizeError, open_zip
from effdet_keras._internal.weights_h5 import check_weights_h5
from effdet_keras.weights.archive import (
    WEIGHTS_ENTRY,
    ZIP_DAMAGES,
    DamagedFileError,
    read_model,
)
from effdet_keras.weights.kinds.keras_h5 import HDF5_MAGIC, read_h5_arrays
from effdet_keras.weights.network_arrays import (
    LEAVES,
    Kind,
    Scheme,
    WeightSource,
    tf1_name,
    under,
)

_CLASS_HEAD, _BOX_HEAD = "layers/prediction_head_1", "layers/prediction_head"
_HEAD_PATHS = {
    "conv": "/convs/{layer}",
    "bn": "/bns/{bn:batch_normalization}",
    "predict": "/predict_conv",
}
OWN = Scheme(  # the paths inside our `.weights.h5`
    {
        "stem_conv": "layers/efficient_net/stem/conv",
        "stem_bn": "layers/efficient_net/stem/bn",
        **under(
            "layers/efficient_net/blocks/{layer}",
            expand_conv="/expand_conv",
            expand_bn="/expand_bn",
            depthwise_conv="/depthwise_conv",
            depthwise_bn="/depthwise_bn",
            se_reduce="/se/reduce_conv",
            se_expand="/se/expand_conv",
            project_conv="/project_conv",
            project_bn="/project_bn",
            fused_conv="/conv",
            fused_bn="/bn",
            single_conv="/conv",
            single_bn="/bn",
        ),
        **under("layers/{extra:resample}", level_conv="/conv", level_bn="/bn"),
        **under(
            "layers/bi_fpn/cells/{cell:bi_fpn_cell}/nodes/{node:bi_fpn_node}",
            edge_conv="/edges/{edge:resample}/conv",
            edge_bn="/edges/{edge:resample}/bn",
            fusion="/fusion",
            node_conv="/conv/conv",
            node_bn="/conv/bn",
        ),
        **{f"class_{part}": _CLASS_HEAD + end for part, end in _HEAD_PATHS.items()},
        **{f"box_{part}": _BOX_HEAD + end for part, end in _HEAD_PATHS.items()},
        **under(
            "layers/segmentation_head",
            segmentation_conv="/convs/{step:conv2d_transpose}",
            segmentation_bn="/bns/{step:batch_normalization}",
            segmentation_predict="/predict_conv",
        ),
    },
    dict.fromkeys(LEAVES, ("/vars/0", "/vars/1", "/vars/2", "/vars/3")),
    has_our_anchors=True,
)

_LAYERS = "layers/"
# Prefixes of further entries by the path of a weight, for its moving average or its
# training value, whichever its own entry does not hold; see train/averages.py.
_AVERAGE, _TRAINING = "vars/average:", "vars/training:"
_MARK = "layers/efficient_net/stem/conv/vars/0"


def read_own_weights(path, averages=True):
    """Reads a file of `model.save_weights`, `model.save` or `write_archive`."""
    path = os.fspath(path)
    if not (zipfile.is_zipfile(path) or path.endswith(".keras")):
        check_weights_h5(path)
        weights = _read_weights(path, path, averages)
        return WeightSource(path, "effdet_keras `.weights.h5`", OWN, **weights)
    arguments = read_model(path)["config"]
    try:
        with open_zip(path) as file:
            weights = file.read(WEIGHTS_ENTRY)
    except UnpackedSizeError:
        raise
    except (*ZIP_DAMAGES, KeyError) as error:
        raise DamagedFileError(path, error) from error
    return WeightSource(
        path,
        "effdet_keras `.keras`",
        OWN,
        **_read_weights(io.BytesIO(weights), path, averages),
        class_names=tuple(arguments.get("class_names") or ()) or None,
        category_ids=tuple(arguments.get("category_ids") or ()) or None,
        config=arguments["config"],
        postprocess=_postprocess_of(arguments),
    )


def _postprocess_of(arguments):
    """Returns the fields of the file's `Postprocess`; None for a user's own class."""
    saved = arguments.get("postprocess") or {}
    return saved["config"] if saved.get("class_name") == "Postprocess" else None


def _read_weights(file, path, averages):
    """Returns fields of `WeightSource`: arrays, averages, names of other entries."""
    beside = _AVERAGE if averages else _TRAINING
    arrays, others = read_h5_arrays(
        file, path, lambda name: name.startswith((_LAYERS, beside))
    )
    weights = {n: array for n, array in arrays.items() if n.startswith(_LAYERS)}
    if _MARK not in weights:
        raise WholeFileError(
            f"'{path}' contains no weights of this package's `EfficientDet`: it has no "
            f"'{_MARK}'."
        )
    instead = {_weight_of(n): array for n, array in arrays.items() if n not in weights}
    # If the file has separate training values, the weights themselves are averages.
    are_averages = [name for name in others if name.startswith(_TRAINING)]
    return {
        "arrays": weights,
        "instead": instead,
        "num_averages": max(len(instead), len(are_averages)) if averages else 0,
        "others": tuple(others),
    }


def _weight_of(name):
    path = name.removeprefix(_AVERAGE).removeprefix(_TRAINING).replace(":", "/")
    return tf1_name(types.SimpleNamespace(path=path))


def _is_of(path, head):
    if not head.startswith(HDF5_MAGIC):
        return path.suffix == ".keras"
    try:
        with h5py.File(path, "r") as root:
            return "layers" in root  # the layout of a Keras 3 model's weights
    except (OSError, RuntimeError, KeyError):  # damaged: the reader raises the error
        return path.name.endswith(".weights.h5")


KIND = Kind(
    title="our own `.weights.h5`, `.keras` and archive folders",
    is_of=_is_of,
    read=read_own_weights,
)
