"""PyTorch effdet's weights, read and written: its names, and which models are ours.

Only effdet's `tf_` models compute what our network computes. Its own family
(`efficientdet_d0`, ...) and its experiments pad symmetrically, and the batch norms of
their backbones have another epsilon. Those of them for which effdet publishes weights
also lack the biases before batch norms: by that they are known, and refused.
"""

import pathlib
import re

import numpy as np

from effdet_keras._internal.local_paths import local_path
from effdet_keras._internal.optional_imports import safetensors, safetensors_numpy
from effdet_keras._internal.optional_imports import torch as optional_torch
from effdet_keras._internal.whole_files import replacing
from effdet_keras.config import MODEL_NAMES, EfficientDetConfig
from effdet_keras.errors import InvalidValueError
from effdet_keras.weights.identify import identify, to_layout_of
from effdet_keras.weights.kinds.torch_files import PICKLE_ENDINGS, read_torch_file
from effdet_keras.weights.kinds.torch_networks import BN_COUNTER, find_network
from effdet_keras.weights.network_arrays import TORCH, network_arrays
from effdet_keras.weights.source import WeightSource

# Where effdet's settings of the `tf_` models differ from google/automl's.
EFFDET_CONFIG = {"aspect_ratios": ((1.0, 1.0), (1.4, 0.7), (0.7, 1.4))}
EFFDET_HALF_CONFIG = {  # the AdvProp and the Lite models: mean and deviation 0.5
    **EFFDET_CONFIG,
    "mean_rgb": (127.5, 127.5, 127.5),
    "stddev_rgb": (127.5, 127.5, 127.5),
}

ENDINGS = (*PICKLE_ENDINGS, ".safetensors")

_EDGE_WEIGHTS = re.compile(r"(.+\.edge_weights)\.\d+")
_BN_VARIANCE = "running_var"

# effdet's `toggle_head_bn_level_first`, for TorchScript: level before repeat.
_LEVEL_FIRST = re.compile(r"^((?:class|box)_net\.bn_rep)\.(\d+)\.(\d+)\.(\w+)$")
_BIAS_BEFORE_BN = re.compile(r"fpn\..+\.conv(_pw)?\.bias")


def read_torch_effdet(path, averages=True):
    """Reads the weights of a PyTorch effdet model. Runs no code of the file.

    The state dict may be the whole file or an entry of a training checkpoint
    (`state_dict`, `model`, `state_dict_ema`, ...), and its names may begin with
    `module.` and `model.`, as wrappers leave them.

    A file does not say how its model prepares images. effdet's anchors
    have the sides (1.4, 0.7) where ours have (1.414, 0.707), its Lite models
    normalise by 127.5 where google/automl's do by 127 and 128: `config` of the
    result has what effdet has. Its AdvProp models (`tf_efficientdet_d0_ap`) are
    told by the name of the file, or of the model where the file has it; rename one
    and they are read as the plain models. Nor can `efficientdet_d4` and `_d5` of
    effdet's own family, which have no published weights, be told from the `tf_`
    models by their arrays: they are refused only where the file has the name.

    Args:
        path: path of a file of `torch.save` (`.pth`, `.pt`, `.pth.tar`) or of a
            `.safetensors` file.
        averages: bool. Of two networks in a file, True takes the one whose entry
            says "ema", and False the other.

    Returns:
        `WeightSource`. Floating arrays are float32; `edge_weights`, vectors in the
        file, become one scalar per edge: `...edge_weights.0`.

    Raises:
        ValueError: If the file is damaged, needs Python code to be read, or holds a
            model that is not our network.
        OSError: If it cannot be opened.
        ImportError: If the file is a `.safetensors`, and safetensors is not installed.

    Example:
        >>> import tempfile
        >>> from safetensors.numpy import save_file
        >>> state = {
        ...     "model.backbone.conv_stem.weight": np.ones((32, 3, 3, 3), "float16"),
        ...     "model.fpn.resample.3.conv.conv.bias": np.zeros(64, "float16"),
        ...     "anchors.boxes": np.zeros((49104, 4)),
        ... }
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_file(state, f"{folder}/d0.safetensors")
        ...     source = read_torch_effdet(f"{folder}/d0.safetensors")
        >>> sorted(source.arrays), source.others
        (['backbone.conv_stem.weight', 'fpn.resample.3.conv.conv.bias'],
         ('anchors.boxes',))
        >>> source.kind
        "PyTorch effdet state dict, under 'model', float16"
    """
    return effdet_source(pathlib.Path(path), read_torch_file(path), averages)


def effdet_source(path, content, averages):
    """The network in what `read_torch_file` found; see `read_torch_effdet`."""
    prefixes = _prefixes(content)
    if not prefixes:
        raise InvalidValueError(
            f"'{path}' is not of PyTorch effdet: no array of the {len(content)} in it "
            f"has a name with 'backbone.'. The first are {list(content)[:3]}. Give the "
            "state dict of a whole detector."
        )
    found = find_network(path, content, prefixes, averages)
    arrays = _named(found.arrays)
    name = content.get("arch")  # timm's name of the model
    _refuse_other_networks(path, arrays, name if isinstance(name, str) else "")
    is_advprop = re.search(r"_ap(?![a-z])", f"{path.name} {name}")
    is_lite = not any(".se." in array for array in arrays)
    return WeightSource(
        path=str(path),
        kind=f"PyTorch effdet state dict{found.description}",
        scheme=TORCH,
        arrays=arrays,
        num_averages=len(arrays) if found.is_average else 0,
        others=found.others,
        config=EFFDET_HALF_CONFIG if is_advprop or is_lite else EFFDET_CONFIG,
    )


def write_torch_effdet(path, arrays, config):
    """Writes weights so that effdet's `load_state_dict(strict=True)` takes them.

    The model to load them into is effdet's `tf_` model of the same size, with
    the same number of classes. Its settings are its own: give it ours where they
    matter, `aspect_ratios=[1.0, 2.0, 0.5]` and the mean and deviation of pixels.

    Args:
        path: path that ends in `.safetensors`, or in `.pth` or `.pt`, which
            needs torch. At every moment it is either the whole old file or the
            whole new one.
        arrays: mapping of name (that of `NetworkArray`) to array, in our layout:
            all arrays of the network and no other.
        config: `EfficientDetConfig` of the network.

    Raises:
        ValueError: If arrays are missing, too many or of wrong shapes, the path
            ends otherwise, or effdet has no such network.
        ImportError: If torch, or safetensors, is not installed.

    Example:
        >>> import tempfile
        >>> config = EfficientDetConfig.from_name("efficientdet-lite0")
        >>> arrays = {a.name: np.zeros(a.shape) for a in network_arrays(config)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_torch_effdet(f"{folder}/lite0.safetensors", arrays, config)
        ...     source = read_torch_effdet(f"{folder}/lite0.safetensors")
        >>> len(source.arrays)
        588
    """
    path = local_path(path, "The path of a state dict")
    save = _saver(path)
    state = _state_dict(arrays, config)
    with replacing(path) as partial:
        save(state, partial)


# Finding the network.


def holds_effdet(content):
    """Whether a name in a file is one of effdet's backbones."""
    return bool(_prefixes(content))


def _prefixes(content):
    """What stands before the names of each network in the file."""
    parts = (name.partition("backbone.") for name in content)
    return list(
        dict.fromkeys(
            before for before, middle, _ in parts if middle and before[-1:] in ("", ".")
        )
    )


def _named(arrays):
    """The arrays under the names that `network_arrays` has."""
    named = {}
    for name, value in arrays.items():
        if name.endswith(".edge_weights"):
            weights = enumerate(value.ravel())
            named.update({f"{name}.{i}": np.asarray(v) for i, v in weights})
        else:
            named[_LEVEL_FIRST.sub(r"\1.\3.\2.bn.\4", name)] = value
    return named


# Refusing what is not our network.


def _refuse_other_networks(path, arrays, model):
    known = _known_backbone_names()
    backbone = [name for name in arrays if name.startswith("backbone.")]
    foreign = [name for name in backbone if name not in known]
    if foreign:
        raise InvalidValueError(
            f"'{path}' has a backbone that is not EfficientNet B0-B7 or Lite0-4: "
            f"{len(foreign)} of its arrays have no place, first '{foreign[0]}' "
            f"{np.shape(arrays[foreign[0]])}. Of effdet's models, the `tf_` ones "
            "can be loaded."
        )
    has_biases = any(map(_BIAS_BEFORE_BN.fullmatch, arrays))
    if has_biases and not model.startswith("efficientdet"):
        return
    source = WeightSource(str(path), "", TORCH, arrays)
    nearest = identify(source).nearest or "efficientdet-d0"
    found = f"is '{model}'" if has_biases else "has no biases before its batch norms"
    raise InvalidValueError(
        f"'{path}' is not a `tf_` model of effdet: it {found}. effdet's own models "
        "pad symmetrically and have batch norms of another epsilon (1e-5) in the "
        "backbone; here both are as in TensorFlow, and the outputs would differ. Use "
        f"the weights of effdet's 'tf_{nearest.replace('-', '_')}'."
    )


def _known_backbone_names():
    configs = map(EfficientDetConfig.from_name, MODEL_NAMES)
    return {
        array.names[TORCH]
        for config in {config.backbone: config for config in configs}.values()
        for array in network_arrays(config)
        if array.is_backbone
    }


# Writing.


def _state_dict(arrays, config):
    """effdet's names and layouts, in NumPy."""
    _check_effdet_has(config)
    network = network_arrays(config)
    _check_complete(arrays, network)
    state = {}
    for array in network:
        name = array.names[TORCH]
        value = np.asarray(arrays[array.name], "float32")
        edge = _EDGE_WEIGHTS.fullmatch(name)
        if edge:
            before = state.get(edge[1], np.zeros(0, "float32"))
            state[edge[1]] = np.append(before, value)
            continue
        state[name] = to_layout_of(value, array, TORCH)
        if name.endswith(_BN_VARIANCE):
            counter = name.removesuffix(_BN_VARIANCE) + BN_COUNTER
            state[counter] = np.zeros((), "int64")
    return state


def _check_effdet_has(config):
    if config.heads != ("object_detection",):
        raise InvalidValueError(
            "effdet has no such network: it has class and box heads, and no others. "
            f"Received: heads={config.heads!r}"
        )
    plain = config.separable_conv and not config.conv_after_downsample
    if not plain or config.fpn_weight_method.startswith("channel_"):
        raise InvalidValueError(
            "effdet has no such network: it needs separable_conv=True, "
            "conv_after_downsample=False and one weight per edge. Received: "
            f"separable_conv={config.separable_conv}, "
            f"conv_after_downsample={config.conv_after_downsample}, "
            f"fpn_weight_method={config.fpn_weight_method!r}"
        )


def _check_complete(arrays, network):
    shapes = {array.name: array.shape for array in network}
    received = {name: np.shape(value) for name, value in arrays.items()}
    wrong = sorted(
        name
        for name in shapes.keys() | received.keys()
        if shapes.get(name) != received.get(name)
    )
    if wrong:
        name = wrong[0]
        raise InvalidValueError(
            f"`arrays` must be the {len(shapes)} arrays of the network. {len(wrong)} "
            f"differ, first '{name}': expected shape {shapes.get(name)}. "
            f"Received: shape {received.get(name)}"
        )


def _saver(path):
    if path.suffix == ".safetensors":
        safetensors.require("Writing `.safetensors` files")
        save_file = safetensors_numpy.save_file
        return lambda state, to: save_file(state, to, metadata={"format": "pt"})
    if path.suffix in PICKLE_ENDINGS:
        torch = optional_torch.require("Writing a file of `torch.save`")
        return lambda state, to: torch.save(
            {name: torch.from_numpy(value) for name, value in state.items()}, to
        )
    raise InvalidValueError(
        "The path of an effdet state dict must end in '.safetensors', '.pth' or "
        f"'.pt'. Received: path='{path}'"
    )
