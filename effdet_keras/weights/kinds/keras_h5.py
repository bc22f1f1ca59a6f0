"""Keras 2's `.h5` files of weights: google/automl's, and Keras Applications'."""

from __future__ import annotations

import collections
import os
import re

import h5py
import ml_dtypes
import numpy as np

from effdet_keras._internal.weights_h5 import check_hdf5, damaged_hdf5
from effdet_keras.errors import InvalidValueError
from effdet_keras.network.config import TF_BACKBONE
from effdet_keras.weights.kinds.automl import published_names
from effdet_keras.weights.network_arrays import TF1, Kind, Scheme, WeightSource, under

APPLICATIONS = Scheme(  # Keras Applications, the backbone alone
    {
        "stem_conv": "stem_conv",
        "stem_bn": "stem_bn",
        **under(
            "block{stage:+1}{letter}",
            expand_conv="_expand_conv",
            expand_bn="_expand_bn",
            depthwise_conv="_dwconv{version}",
            depthwise_bn="_bn",
            se_reduce="_se_reduce",
            se_expand="_se_expand",
            project_conv="_project_conv",
            project_bn="_project_bn",
            fused_conv="_expand_conv",
            fused_bn="_expand_bn",
            single_conv="_project_conv",
            single_bn="_project_bn",
        ),
    },
)

_MODEL, _OPTIMIZER = "model_weights/", "optimizer_weights/"  # of `model.save`

# Layers that identify Keras Applications; other files have a `stem_conv` too.
_APPLICATIONS_MARK = "block1a_dwconv/depthwise_kernel"
_V2_MARK = "block4a_dwconv2/depthwise_kernel"
_DEPTHWISE_OF_KERAS_3 = re.compile(r"(_dwconv2?)/kernel$")
_INPUT_LAYER = re.compile(r"^(normalization|rescaling)(_\d+)?/")


def read_keras2_h5(path, averages=True):
    """Reads the `.h5` file of an EfficientDet or a backbone as a `WeightSource`."""
    path = os.fspath(path)
    arrays, others = read_h5_arrays(
        path, path, lambda name: not name.startswith(_OPTIMIZER)
    )
    arrays = _by_weight_name(arrays)
    ignored = [name for name in arrays if _INPUT_LAYER.match(name)]
    arrays = {name: array for name, array in arrays.items() if name not in ignored}
    others = tuple(others + ignored)
    if _APPLICATIONS_MARK in arrays or _V2_MARK in arrays:
        version = "" if _APPLICATIONS_MARK in arrays else "V2"
        return WeightSource(
            path,
            f"Keras Applications EfficientNet{version} `.h5`",
            APPLICATIONS,
            arrays,
            others=others,
            config=TF_BACKBONE,
        )
    names = published_names(arrays, TF1, path)
    arrays = {names[name]: array for name, array in arrays.items()}
    return WeightSource(path, "Keras 2 `.h5` of EfficientDet", TF1, arrays, 0, others)


def _by_weight_name(arrays):
    """Returns the arrays by the name of their weight, if that name is unique.

    Other arrays keep their path in the file.
    """
    names = {path: _weight_name(path) for path in arrays}
    counts = collections.Counter(names.values())
    return {
        names[path] if counts[names[path]] == 1 else path: array
        for path, array in arrays.items()
    }


def _weight_name(path):
    name = path.removeprefix(_MODEL).partition("/")[2].removesuffix(":0")
    # Keras 3 can still write such files, but has another name for this kernel.
    return _DEPTHWISE_OF_KERAS_3.sub(r"\1/depthwise_kernel", name)


def _is_of(path, head):
    return head.startswith(HDF5_MAGIC)


KIND = Kind(
    title="google/automl's `.h5` file; Keras Applications' EfficientNet or V2 "
    "`_notop.h5`",
    is_of=_is_of,
    read=read_keras2_h5,
)


# --- Arrays of an HDF5 file; a damaged file gives an understandable error.

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"  # the first bytes of an HDF5 file


def read_h5_arrays(file, path, is_wanted):
    """Returns the wanted arrays of an HDF5 file by name, and the other names."""
    arrays, others = {}, []

    def read(name, item):
        if not isinstance(item, h5py.Dataset):
            return
        if not is_wanted(name):
            others.append(name)
            return
        array = np.asarray(item[()])
        is_bfloat16 = item.attrs.get("dtype") == "bfloat16"  # HDF5 has no such type
        arrays[name] = array.view(ml_dtypes.bfloat16) if is_bfloat16 else array

    try:
        with h5py.File(file, "r") as root:
            check_hdf5(root, path)
            root.visititems(read)
    except (FileNotFoundError, PermissionError, IsADirectoryError, InvalidValueError):
        raise
    except Exception as error:  # damaged files can cause almost any exception
        raise damaged_hdf5(path, error) from error
    return arrays, others
