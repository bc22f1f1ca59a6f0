"""Assigns the arrays of a file to a model, and reports every array that is skipped."""

from __future__ import annotations

import collections
import dataclasses
from typing import NamedTuple

import numpy as np
from keras import ops

from effdet_keras.errors import InvalidValueError, check_choice, hint, printable
from effdet_keras.weights.identify import identify, match_arrays
from effdet_keras.weights.network_arrays import (
    is_backbone_name,
    network_arrays,
    tf1_name,
)

# The values of `fine_tune_checkpoint_type` of the Object Detection API, each with a
# function that selects the arrays not to load. In that API, "detection" restores the
# feature extractor, which is the backbone with the BiFPN.
CHECKPOINT_TYPES = {
    "full": lambda array: False,
    "detection": lambda array: array.is_head,
    "classification": lambda array: not array.is_backbone,
}

BACKBONE_ALONE = "the file contains only a backbone"  # reason why other weights are new


def assign_source(model, source, *, skip_mismatch=False, checkpoint_type=None):
    """Assigns the arrays of a source to a model, and returns a `LoadReport`.

    Args:
        model: `EfficientDet`.
        source: `WeightSource`.
        skip_mismatch: bool. `True` keeps the weights of the model for which the file
            has no array of the right shape. `False` raises an error for them. Class
            heads with other classes, and files of a backbone alone, are not errors.
        checkpoint_type: `None`, or one of `CHECKPOINT_TYPES`: which parts of the
            network to load.

    Raises:
        ValueError: If the arrays do not fit the model, or there are none.
    """
    check_choice("checkpoint_type", checkpoint_type, (None, *CHECKPOINT_TYPES))
    match = match_arrays(source, model.config)
    _check_mapped(source, model)
    plan = _Plan(match)
    if checkpoint_type is not None:
        is_left = CHECKPOINT_TYPES[checkpoint_type]
        names = [a.name for a in network_arrays(model.config) if is_left(a)]
        plan.leave(
            names, (f"they are not loaded with checkpoint_type={checkpoint_type!r}")
        )
    else:
        _leave_other_classes(plan, model, source)
        _leave_other_segmentation(plan, model)
        held = [*match.found, *match.mismatched]
        lacks_backbone = any(array.is_backbone for array in match.missing)
        if all(map(is_backbone_name, held)) and not lacks_backbone:
            plan.leave(plan.missing, BACKBONE_ALONE)
    lacks = plan.missing or plan.mismatched
    if not plan.values or (lacks and not skip_mismatch):
        raise InvalidValueError(_explain(plan, model, source))
    plan.leave(plan.missing, "the file does not contain them")
    plan.leave(plan.mismatched, "the file has them with another shape")
    by_name = {tf1_name(variable): variable for variable in model.weights}
    for name, value in plan.values.items():
        by_name[name].assign(np.asarray(value, "float32"))
    model.weights_were_set()
    model.loaded_classes = _loaded_classes(model, source, plan)
    model.pretrained = _kind_of_start(model, plan)
    return LoadReport(
        path=source.path,
        kind=source.kind,
        model_name=model.config.name,
        num_loaded=len(plan.values) - sum(len(n.names) for n in plan.new if n.carried),
        num_weights=len(model.weights),
        num_averages=source.num_averages,
        new=tuple(plan.new),
        left_over=tuple(match.left_over),
        others=tuple(source.others),
        mapped=tuple(
            (in_file, name)
            for name, (in_file, _) in source.mapped.items()
            if name in plan.values
        ),
    )


def _check_mapped(source, model):
    """Raises an error if a name map names a weight that the model does not have."""
    names = [array.name for array in network_arrays(model.config)]
    for target, (in_file, _) in source.mapped.items():
        if target not in names:
            raise InvalidValueError(
                f"`name_map` maps {in_file!r} of '{source.path}' to {target!r}, but "
                f"`{model.config.name}` has no weight of this "
                f"name.{hint(target, names)} Its weights have the names of "
                f"google/automl's checkpoints, such as {names[0]!r}."
            )


class _Plan:
    """Arrays to assign, arrays that do not fit, and weights to keep, with reasons."""

    def __init__(self, match):
        self.values = dict(match.found)
        self.mismatched = dict(match.mismatched)
        self.missing = {array.name: array for array in match.missing}
        self.new = []

    def leave(self, names, reason, carried=()):
        names = tuple(names)
        for name in names:
            for group in (self.values, self.mismatched, self.missing):
                group.pop(name, None)
        if names:
            self.new.append(NewWeights(reason, names, carried))


def _leave_other_classes(plan, model, source):
    """Keeps the last layer of the class head if the file has different classes.

    The outputs of classes that file and model share by name are loaded nevertheless.
    """
    arrays = [a for a in network_arrays(model.config) if a.part == "class_predict"]
    layer = [array.name for array in arrays]
    held = {n: plan.values.get(n, plan.mismatched.get(n)) for n in layer}
    if not layer or any(value is None for value in held.values()):
        return  # the model or the file has no class head
    bias, num_anchors = held[layer[-1]], model.config.num_anchors
    if bias.ndim != 1 or bias.size % num_anchors:
        return  # not the last layer of a head with these anchors
    if any(np.shape(held[a.name])[:-1] != tuple(a.shape)[:-1] for a in arrays):
        # Of another preset: the layers before do not fit either, which is an error.
        plan.leave(layer, "the heads in the file have another number of filters")
        return
    names, file_names = model.class_names, source.class_names
    num_file_classes = bias.size // num_anchors
    if num_file_classes != model.num_classes:
        reason = (
            f"the file has {num_file_classes} classes, and the model has "
            f"{model.num_classes}"
        )
    elif None in (names, file_names) or names == file_names:
        return
    else:
        reason = "the classes in the file have other names"
    kept = {}  # for classes with the same name: the model's label to the file's label
    if names and file_names:
        kept = {names.index(n): file_names.index(n) for n in names if n in file_names}
    plan.leave(layer, reason, tuple(names[label] for label in kept))
    if kept:
        plan.values.update(_values_of_kept_classes(model, held, num_file_classes, kept))


def _kind_of_start(model, plan):
    """Returns `EfficientDet.pretrained` for the weights that were assigned."""
    if all(map(is_backbone_name, plan.values)):
        return "backbone"
    loaded = model.loaded_classes
    is_whole = loaded is not None and not loaded.new_labels
    return "detector" if is_whole else "detector of other classes"


def _loaded_classes(model, source, plan):
    """Returns the classes that were loaded; None if other weights are new as well."""
    new = [name for group in plan.new for name in group.names]
    parts = {array.name: array.part for array in network_arrays(model.config)}
    if any(parts[name] != "class_predict" for name in new):
        return None
    if not new:
        return LoadedClasses(source.class_names, ())
    names = model.class_names or ()
    carried = [name for group in plan.new for name in group.carried]
    labels = range(model.num_classes)
    is_old = [label < len(names) and names[label] in carried for label in labels]
    return LoadedClasses(
        source.class_names, tuple(label for label in labels if not is_old[label])
    )


def _leave_other_segmentation(plan, model):
    """Keeps a segmentation head that the file lacks, or its last layer if different."""
    head = [a.name for a in network_arrays(model.config) if a.is_segmentation]
    if head and all(name in plan.missing for name in head):
        if any(not is_backbone_name(name) for name in plan.values):
            plan.leave(head, "the file has no segmentation head")
        return
    layer = head[-2:]  # its kernel and bias
    if layer and all(name in plan.mismatched for name in layer):
        count = plan.mismatched[layer[-1]].size
        plan.leave(
            layer,
            f"the file has {count} classes of pixels, and the model has "
            f"{model.config.seg_num_classes}",
        )


def _values_of_kept_classes(model, held, num_file_classes, kept):
    """Returns the class layer, with the file's values for the classes in `kept`.

    `kept` maps labels of the model to labels of the file.
    """
    by_name = {tf1_name(variable): variable for variable in model.weights}
    labels, file_labels = list(kept), list(kept.values())
    values = {}
    for name, value in held.items():
        if name.endswith("/depthwise_kernel"):
            values[name] = value  # all classes share these filters
            continue
        own = np.array(ops.convert_to_numpy(by_name[name]))
        lead, anchors = own.shape[:-1], model.config.num_anchors
        # Channel `anchor * num_classes + label`.
        by_class = own.reshape(*lead, anchors, model.num_classes)
        of_file = value.reshape(*lead, anchors, num_file_classes)
        by_class[..., labels] = of_file[..., file_labels]
        values[name] = by_class.reshape(own.shape)
    return values


def _explain(plan, model, source):
    """Returns the error message for weights that do not fit the model."""
    identity, name = identify(source), model.config.name
    text = f"The weights in '{source.path}' ({source.kind}) do not fit `{name}`"
    if identity.names and name not in identity.names:
        return (
            f"{text}, because they belong to {identity}. Make that model: "
            f"`EfficientDet.from_preset({identity.names[0]!r}, weights=...)`."
        )
    of_model = {array.name: array for array in network_arrays(model.config)}
    if plan.mismatched:
        name, value = next(iter(plan.mismatched.items()))
        first, count = of_model[name], len(plan.mismatched)
        arrays = "1 array has" if count == 1 else f"{count} arrays have"
        problem = f"{arrays} another shape in the file, such as {np.shape(value)} for"
    elif plan.missing:
        first = next(iter(plan.missing.values()))
        some = ", ".join(list(source.arrays)[:3])
        lacking = _counted(plan.missing, "weight is", "weights are")
        problem = f"the file contains {some}, ..., but {lacking} missing, such as"
    else:
        return f"{text}: the file contains none of the model's weights"
    return (
        f"{text}: {problem} {(source.scheme.name_of(first) or first.name)!r}, which is "
        f"{first.shape} in the model. Make the model with the config of the file, or "
        "pass `skip_mismatch=True` to keep the model's own values where the file does "
        "not fit."
    )


# --- Reports of the weights that were loaded, and of those that were not.


class LoadedClasses(NamedTuple):
    """The classes of a model whose outputs were loaded from another detector."""

    names: tuple[str, ...] | None  # the detector's class names; None if not known
    new_labels: tuple[int, ...]  # labels of the model whose outputs are not loaded


_SHOWN, _MOST_PARTS = 4, 10  # the most names before "...", and the most parts to list


@dataclasses.dataclass(frozen=True)
class NewWeights:
    """Weights of the model that were not loaded completely, and the reason.

    Attributes:
        reason: string.
        names: tuple of strings, the names of the weights.
        carried: tuple of strings, the classes whose outputs were loaded nevertheless,
            because file and model both have a class of that name.
    """

    reason: str
    names: tuple[str, ...]
    carried: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class LoadReport:
    """Report of `load_pretrained` on loaded and new weights. Prints as a few lines.

    Attributes:
        path: string, path or address of the file.
        kind: string, the kind of file.
        model_name: string, the name of the model's config.
        num_loaded: int, number of weights that were loaded completely.
        num_weights: int, number of weights that the model has.
        num_averages: int, number of arrays in the file that are moving averages.
        new: tuple of `NewWeights`, the weights that were not loaded, by reason.
        left_over: tuple of strings, arrays of the file that belong to no weight.
        others: tuple of strings, other entries of the file, such as the optimizer and
            counters.
        notes: tuple of strings, further notes for the user.
        mapped: tuple of pairs of strings, the weights that `name_map` loaded: the name
            in the file, and the name of the weight.

    Example:
        >>> head = NewWeights("the file has no segmentation head", ("a/b/c",))
        >>> print(LoadReport("d0.pth", "state dict", "d0", 2, 3, 0, (head,), (), ()))
        Loaded 2 of 3 weights of d0 from 'd0.pth' (state dict)
          1 weight keeps its initial values: the file has no segmentation head
            a/b/c
    """

    path: str
    kind: str
    model_name: str
    num_loaded: int
    num_weights: int
    num_averages: int
    new: tuple[NewWeights, ...]
    left_over: tuple[str, ...]
    others: tuple[str, ...]
    notes: tuple[str, ...] = ()
    mapped: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        averages = f", {self.num_averages} moving averages" if self.num_averages else ""
        lines = [
            f"Loaded {self.num_loaded} of {self.num_weights} weights of "
            f"{self.model_name} from '{self.path}' ({self.kind}{averages})"
        ]
        if self.mapped:
            pairs = [f"{in_file} -> {name}" for in_file, name in self.mapped]
            lines.append(f"  {len(pairs)} of them by `name_map`")
            lines += [f"    {pair}" for pair in pairs[:_SHOWN]]
            lines += ["    ..."] if len(pairs) > _SHOWN else []
        for group in self.new:
            kept = _counted(group.names, "weight keeps its", "weights keep their")
            lines.append(f"  {kept} initial values: {group.reason}")
            lines += [f"    {line}" for line in parts_of(group.names)]
            if group.carried:
                lines.append(f"    carried over by name: {_listed(group.carried)}")
        if self.left_over:
            lines.append(
                f"  not used, because the model has no such weights "
                f"({_counted(self.left_over, 'array', 'arrays')}): "
                f"{_listed(self.left_over)}"
            )
        if self.others:
            lines.append(
                "  not part of a network "
                f"({_counted(self.others, 'entry', 'entries')}): "
                f"{_listed(self.others)}"
            )
        lines += [f"  Note: {note}" for note in self.notes]
        return printable("\n".join(lines))


def parts_of(names):
    """Returns the names, or if there are many, their number in each network part."""
    if len(names) <= _SHOWN:
        return list(names)
    firsts = (name.replace(".", "/").split("/")[0] for name in names)
    counts = collections.Counter(firsts).most_common(_MOST_PARTS)
    return [f"{part}: {count:,}" for part, count in counts]


def _counted(names, one, many):
    return f"{len(names)} {one if len(names) == 1 else many}"


def _listed(names):
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
