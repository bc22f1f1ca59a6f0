"""What is in a file of weights, in words, without building a model."""

import collections
import contextlib
import os

import numpy as np

from effdet_keras.errors import EffDetError
from effdet_keras.model.config import EfficientDetConfig
from effdet_keras.weights.identify import identify, match_arrays
from effdet_keras.weights.kinds.registry import open_weights
from effdet_keras.weights.locate import located
from effdet_keras.weights.network_arrays import network_arrays

_SHOWN = 10  # names in a list before "..."


def describe_weights(source, model_name=None):
    """Says what a file holds, which model it is of, and what would load."""
    identity = identify(source)
    size = sum(np.size(array) for array in source.arrays.values())
    averages = f", {source.num_averages} of them moving averages"
    lines = [
        f"{source.path}: {source.kind}",
        f"Model:   {identity}",
        f"Arrays:  {len(source.arrays):,} ({size:,} values)"
        + (averages if source.num_averages else ""),
    ]
    if source.class_names is not None:
        lines.append(f"Classes: {_listed(source.class_names)}")
    if source.others:
        lines.append(f"Besides: {len(source.others):,} not of a network")
        lines += _counted(source.others)
    lines += [f"Note:    {note}" for note in source.notes]
    if identity.is_backbone:
        lines.append(f"Use:     {_how_to_use(source.path, identity)}")
    model_name = model_name or next(iter(identity.names), identity.nearest)
    if model_name is None:
        return "\n".join([*lines, f"Names:   {_listed(tuple(source.arrays))}"])
    return "\n".join(lines + _what_loads(source, model_name, identity.num_classes))


def what_weights_are(path):
    """Says in one sentence what a file of weights is, and how to use it."""
    with contextlib.suppress(EffDetError, OSError, ImportError):
        with located(path, verbose=0) as file:
            source = open_weights(file)
        identity = identify(source)
        if identity.names:
            use = _how_to_use(os.fspath(path), identity)
            return f"It holds: {source.kind}, {identity}. To use them: {use}."
    return ""


def _how_to_use(path, identity):
    """The call that makes a model of the weights."""
    name = identity.names[0]
    if not identity.is_backbone:
        return f"`ek.EfficientDet.from_preset({name!r}, weights={path!r})`"
    return (
        f"`ek.EfficientDet.from_preset({name!r}, weights={path!r}, "
        "class_names=[...])`, and train: BiFPN and heads start new"
    )


def list_arrays(source):
    """Lists every array of a file, one per line, with its name and shape."""
    width = max(map(len, source.arrays), default=0)
    return "\n".join(
        f"{name:<{width}}  {'x'.join(map(str, np.shape(array))) or 'scalar'}"
        for name, array in sorted(source.arrays.items())
    )


def _what_loads(source, model_name, num_classes):
    config = EfficientDetConfig.from_name(model_name, num_classes=num_classes or 90)
    match = match_arrays(source, config)
    count = len(network_arrays(config))
    lines = [f"Would load into {model_name}: {len(match.found)} of {count} weights"]
    groups = {
        "Not in the file": [array.name for array in match.missing],
        "Of another shape": list(match.mismatched),
        "Not the model's": match.left_over,
    }
    for heading, names in groups.items():
        if names:
            lines += [f"{heading}: {len(names)}", *_counted(names)]
    return lines


def _counted(names):
    """How many names there are of each part: by the first piece of a name."""
    if len(names) <= 3:
        return [f"  {name}" for name in names]
    first = collections.Counter(
        name.replace(".", "/").split("/")[0] for name in names
    ).most_common(_SHOWN)
    return [f"  {part}: {count:,}" for part, count in first]


def _listed(names):
    more = f", ... ({len(names)})" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
