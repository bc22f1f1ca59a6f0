"""Freezes weights by group or by name, and stores in files which are frozen."""

from __future__ import annotations

import contextlib
import re

from effdet_keras.errors import InvalidValueError, check_pattern, require
from effdet_keras.network.batch_norm import STATISTICS, batch_norm_layers
from effdet_keras.train.new_classes import (
    ALL_BUT_NEW_CLASSES,
    labels_to_freeze,
    output_variables,
)

# The groups that `freeze` takes by name: expressions that match from a path's start.
WEIGHT_GROUPS = {
    "backbone": r"efficientnet(v2)?-",
    "backbone+fpn": r"(efficientnet(v2)?-|resample_p\d+/|fpn_cells/)",
}


def freeze(model, what, batch_norm=True):
    """Stops some weights from training, and lets all others train.

    See `EfficientDet.freeze`, which also compiles the model again.
    """
    if what == ALL_BUT_NEW_CLASSES:
        _freeze_all_but_new_classes(model, batch_norm)
        return
    check_pattern("freeze", what)
    pattern = re.compile(WEIGHT_GROUPS.get(what, what))
    weights = _weights_of(model)
    frozen = {v.path for v in weights if pattern.match(v.path)}
    if not frozen:
        layers = dict.fromkeys(v.path.split("/")[0] for v in weights)
        names = ", ".join(map(repr, [*WEIGHT_GROUPS, ALL_BUT_NEW_CLASSES]))
        raise InvalidValueError(
            f"No weight of the model matches. Received: freeze={what!r}. `freeze` "
            f"(--freeze) must be {names}, or a regular expression that matches the "
            f"beginning of a weight's path. Paths begin with {', '.join(layers)}."
        )
    require(
        len(frozen) < len(weights),
        "This freezes all weights of the model, so that nothing is left to train",
        freeze=what,
    )
    _freeze_paths(model, frozen, batch_norm)


def unfreeze(model, what=""):
    """Unfreezes weights, by default all. Other frozen weights stay frozen.

    If the config has `frozen_batch_norm=True`, batch norms always stay frozen.
    """
    pattern = re.compile(WEIGHT_GROUPS.get(what, what))
    frozen = {v.path for v in _weights_of(model) if not v.trainable}
    rest = {path for path in frozen if not pattern.match(path)}
    _freeze_paths(model, rest, batch_norm=True)


def is_trainable(model, group):
    """Returns whether any weight of one of the `WEIGHT_GROUPS` trains."""
    pattern = re.compile(WEIGHT_GROUPS[group])
    return any(pattern.match(v.path) for v in model.trainable_variables)


def frozen_state(model):
    """Returns the paths of frozen weights and batch norms, for `restore_frozen`.

    JSON can hold the result.
    """
    state = {
        "weights": [v.path for v in _weights_of(model) if not v.trainable],
        "batch_norms": [bn.path for bn in batch_norm_layers(model) if not bn.trainable],
    }
    if model.frozen_labels:  # without these, files stay as in earlier releases
        state["labels"] = list(model.frozen_labels)
    return state


def restore_frozen(model, state):
    """Freezes what `frozen_state` returned, and unfreezes everything else."""
    weights, batch_norms = set(state["weights"]), set(state["batch_norms"])
    model.frozen_labels = tuple(state.get("labels", ()))
    model.trainable = True
    for bn in batch_norm_layers(model):
        bn.trainable = bn.path not in batch_norms
    for variable in _weights_of(model):
        variable.trainable = variable.path not in weights


@contextlib.contextmanager
def unchanged_by_errors(model):
    """Context that restores what was frozen before it, if the block raises an error."""
    state = frozen_state(model)
    try:
        yield
    except BaseException:
        if frozen_state(model) != state:
            restore_frozen(model, state)
        raise


def _freeze_all_but_new_classes(model, batch_norm):
    """Freezes all weights except the outputs of new classes in the class head."""
    rule = (
        f"`freeze={ALL_BUT_NEW_CLASSES!r}` always freezes the statistics of all batch "
        "norms too, so `freeze_batch_norm` (`batch_norm` of the method `freeze`) must "
        "be True"
    )
    require(batch_norm, rule, freeze_batch_norm=batch_norm)
    labels = labels_to_freeze(model)
    outputs = {v.path for v in output_variables(model)}
    _freeze_paths(
        model, {v.path for v in _weights_of(model)} - outputs, batch_norm=True
    )
    model.frozen_labels = labels


def _freeze_paths(model, frozen, batch_norm):
    """Freezes the weights of these paths; `batch_norm` is that of `freeze`."""
    norms = batch_norm_layers(model)
    if model.config.frozen_batch_norm:
        frozen, batch_norm = frozen | {v.path for v in _weights_of(*norms)}, True
    own = {bn.path: {v.path for v in _weights_of(bn)} for bn in norms}
    whole = [path for path, paths in own.items() if batch_norm and paths <= frozen]
    restore_frozen(model, {"weights": frozen, "batch_norms": whole})


def _weights_of(*layers):
    """Returns the weights that can be frozen, without batch-norm statistics."""
    return [v for x in layers for v in x.weights if v.name not in STATISTICS]
