"""Puts the arrays of a file into a model, strictly: nothing is skipped in silence."""

import numpy as np
from keras import ops

from effdet_keras.checkpoints.match import identify, match_arrays
from effdet_keras.checkpoints.network_arrays import network_arrays
from effdet_keras.checkpoints.report import LoadReport, NewWeights
from effdet_keras.checkpoints.tf1_names import tf1_name

# What the Object Detection API calls `fine_tune_checkpoint_type`, and what each
# leaves as it is in the model.
CHECKPOINT_TYPES = {
    "full": lambda array: False,
    "detection": lambda array: array.is_class_layer,
    "classification": lambda array: not array.is_backbone,
}


def assign_source(model, source, *, skip_mismatch=False, checkpoint_type=None):
    """Assigns the arrays of a file to the weights of a model.

    Everything is checked before the first weight changes. A file of a backbone
    alone leaves the BiFPN and the heads as they are. Where file and model have
    other classes, the last layer of the class head stays as it is; if both name
    their classes, what belongs to a shared name is carried over.

    Args:
        model: `EfficientDet`.
        source: `WeightSource`.
        skip_mismatch: bool, whether to leave weights that the file lacks, or has
            in another shape, as they are.
        checkpoint_type: None; "full": the class layer must fit as well;
            "detection": all but the class layer; "classification": the backbone.

    Returns:
        `LoadReport`.

    Raises:
        ValueError: If a weight has no array, or one of another shape, and
            `skip_mismatch` is False; or if nothing fits.

    Example:
        >>> from effdet_keras.checkpoints.network_arrays import TF1
        >>> from effdet_keras.checkpoints.source import WeightSource
        >>> from effdet_keras.models import EfficientDet
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2
        ... )
        >>> arrays = {a.name: np.zeros(a.shape) for a in network_arrays(model.config)}
        >>> report = assign_source(model, WeightSource("zeros", "", TF1, arrays))
        >>> report.num_loaded == len(model.weights)
        True
    """
    match = match_arrays(source, model.config)
    new = []
    values = dict(match.found)
    mismatched = dict(match.mismatched)
    missing = list(match.missing)
    _check_type(checkpoint_type)
    if checkpoint_type is None:
        _take_class_layer(model, source, values, mismatched, new)
    else:
        _leave(model, checkpoint_type, values, mismatched, missing, new)
    if checkpoint_type is None and missing and values and _has_backbone_alone(match):
        _take_backbone_alone(missing, new)
    if not values or ((missing or mismatched) and not skip_mismatch):
        raise ValueError(_explain(model, source, missing, mismatched))
    if missing:
        names = tuple(array.name for array in missing)
        new.append(NewWeights("the file does not hold them", names))
    if mismatched:
        reason = "the file has them in another shape"
        new.append(NewWeights(reason, tuple(mismatched)))
    _assign(model, values)
    return LoadReport(
        path=source.path,
        kind=source.kind,
        model_name=model.config.name,
        num_loaded=len(values) - sum(n.num_partly_loaded for n in new),
        num_weights=len(model.weights),
        num_averages=source.num_averages,
        new=tuple(new),
        left_over=tuple(match.left_over),
        others=tuple(source.others),
    )


def _assign(model, values):
    by_name = {tf1_name(variable): variable for variable in model.weights}
    unknown = set(values) - set(by_name)
    assert not unknown, f"`network_arrays` names what the model has not: {unknown}"
    averages = getattr(model, "averages", None)
    if averages is not None:
        averages.restore()
    for name, value in values.items():
        by_name[name].assign(np.asarray(value, "float32"))
    if averages is not None:
        averages.reset()


def _check_type(checkpoint_type):
    if checkpoint_type is not None and checkpoint_type not in CHECKPOINT_TYPES:
        raise ValueError(
            f"`checkpoint_type` must be None, {', '.join(map(repr, CHECKPOINT_TYPES))}"
            f". Received: checkpoint_type={checkpoint_type!r}"
        )


def _leave(model, checkpoint_type, values, mismatched, missing, new):
    """Leaves what this type of checkpoint is not asked for."""
    is_left = CHECKPOINT_TYPES[checkpoint_type]
    names = [a.name for a in network_arrays(model.config) if is_left(a)]
    for name in names:
        values.pop(name, None)
        mismatched.pop(name, None)
    missing[:] = [array for array in missing if array.name not in names]
    if names:
        reason = f"a {checkpoint_type} checkpoint is not asked for them"
        new.append(NewWeights(reason, tuple(names)))


def _take_class_layer(model, source, values, mismatched, new):
    """Moves what must not be assigned as it is from `values` and `mismatched`."""
    layer = [a.name for a in network_arrays(model.config) if a.is_class_layer]
    held = {n: values.get(n, mismatched.get(n)) for n in layer}
    if any(value is None for value in held.values()):
        return
    bias, num_anchors = held[layer[-1]], model.config.num_anchors
    if bias.ndim != 1 or bias.size % num_anchors:
        return  # not the last layer of a head with these anchors
    ours, theirs = model.class_names, source.class_names
    num_theirs = bias.size // num_anchors
    if num_theirs == model.num_classes and (None in (ours, theirs) or ours == theirs):
        return
    for name in layer:
        values.pop(name, None)
        mismatched.pop(name, None)
    carried = _shared_names(ours, theirs)
    if carried:
        values.update(_carried_over(model, held, num_theirs, carried))
    new.append(
        NewWeights(
            f"the file has {num_theirs} classes, the model {model.num_classes}"
            if num_theirs != model.num_classes
            else "the classes of the file have other names",
            tuple(layer),
            carried=tuple(ours[label] for label in carried),
        )
    )


def _shared_names(ours, theirs):
    """Dict of our label to theirs, for the classes that both name."""
    if ours is None or theirs is None:
        return {}
    their_labels = {name: label for label, name in enumerate(theirs)}
    return {
        label: their_labels[name]
        for label, name in enumerate(ours)
        if name in their_labels
    }


def _carried_over(model, held, num_theirs, carried):
    """The last layer: as it is, with the outputs of the carried classes replaced."""
    by_name = {tf1_name(variable): variable for variable in model.weights}
    ours, theirs = list(carried), list(carried.values())
    values = {}
    for name, value in held.items():
        if name.endswith("/depthwise_kernel"):
            values[name] = value  # every class looks through the same filters
            continue
        own = np.array(ops.convert_to_numpy(by_name[name]))
        lead, anchors = own.shape[:-1], model.config.num_anchors
        # Channel `anchor * num_classes + label`.
        by_class = own.reshape(*lead, anchors, model.num_classes)
        by_class[..., ours] = value.reshape(*lead, anchors, num_theirs)[..., theirs]
        values[name] = by_class.reshape(own.shape)
    return values


def _has_backbone_alone(match):
    arrays = [*match.found, *match.mismatched]
    return not any(a.is_backbone for a in match.missing) and all(
        name.startswith("efficientnet-") for name in arrays
    )


def _take_backbone_alone(missing, new):
    names = tuple(array.name for array in missing)
    new.append(NewWeights("the file holds a backbone alone", names))
    missing.clear()


def _explain(model, source, missing, mismatched):
    identity = identify(source)
    name = model.config.name
    text = f"The weights in '{source.path}' ({source.kind}) do not fit `{name}`"
    if identity.names and name not in identity.names:
        return (
            f"{text}: they are of {identity}. Make that model: "
            f"`EfficientDet.from_preset({identity.names[0]!r}, weights=...)`."
        )
    cure = (
        "Make the model with the config of the file, or pass `skip_mismatch=True` to "
        "leave what does not fit as it is."
    )
    if mismatched:
        name, value = next(iter(mismatched.items()))
        shapes = {a.name: a for a in network_arrays(model.config)}
        array = shapes[name]
        return (
            f"{text}: {len(mismatched)} arrays have another shape. The first is "
            f"{array.names[source.scheme]!r}, {np.shape(value)} in the file and "
            f"{array.shape} in the model ({name!r}). {cure}"
        )
    first = missing[0] if missing else None
    if first is None or len(missing) == len(network_arrays(model.config)):
        some = ", ".join(list(source.arrays)[:3]) or "nothing"
        return (
            f"{text}: none of its {len(source.arrays)} arrays belongs to the model "
            f"(it holds {some}, ...; {identity})."
        )
    return (
        f"{text}: {len(missing)} of {len(model.weights)} weights are not in it. The "
        f"first is {first.names.get(source.scheme, first.name)!r}, of shape "
        f"{first.shape}. {cure}"
    )
