"""Which weights of a model train: chosen by part or by name, kept in files."""

import re

import keras

from effdet_keras.errors import InvalidValueError, require

PARTS = {
    "backbone": r"efficientnet(v2)?-",
    "backbone+fpn": r"(efficientnet(v2)?-|resample_p\d+/|fpn_cells/)",
}
STATISTICS = ("moving_mean", "moving_variance")  # of a batch norm


def freeze(model, what, batch_norm=True):
    """Stops some weights from training, and lets all others train; see the model's."""
    pattern = re.compile(PARTS.get(what, what))
    weights = [v for v in model.weights if v.name not in STATISTICS]
    frozen = {v.path for v in weights if pattern.match(v.path)}
    if not frozen:
        parts = dict.fromkeys(v.path.split("/")[0] for v in weights)
        raise InvalidValueError(
            f"No weight matches. Received: freeze={what!r}. It may be "
            f"{', '.join(map(repr, PARTS))}, or a regular expression that matches "
            f"from the start of a path; paths start with {', '.join(parts)}."
        )
    require(len(frozen) < len(weights), "Nothing is left to train", freeze=what)
    _set(model, frozen, batch_norm)


def unfreeze(model):
    """Lets all weights train, but the batch norms of a `frozen_batch_norm=True`."""
    _set(model, set(), batch_norm=True)


def trains(model, part):
    """Whether any weight of one of the `PARTS` trains."""
    pattern = re.compile(PARTS[part])
    return any(pattern.match(v.path) for v in model.trainable_variables)


def frozen_state(model):
    """What does not train, in values that JSON can hold; see `restore_frozen`."""
    return {
        "weights": [
            v.path
            for v in model.weights
            if not v.trainable and v.name not in STATISTICS
        ],
        "batch_norms": [bn.path for bn in batch_norms_of(model) if not bn.trainable],
    }


def restore_frozen(model, state):
    """Freezes what `frozen_state` noted, and nothing else."""
    weights, batch_norms = set(state["weights"]), set(state["batch_norms"])
    model.trainable = True
    for bn in batch_norms_of(model):
        bn.trainable = bn.path not in batch_norms
    for variable in model.weights:
        if variable.name not in STATISTICS:
            variable.trainable = variable.path not in weights


def _set(model, frozen, batch_norm):
    always = model.config.frozen_batch_norm
    batch_norms = [
        bn.path
        for bn in batch_norms_of(model)
        if always or (batch_norm and _is_frozen(bn, frozen))
    ]
    state = {"weights": list(frozen), "batch_norms": batch_norms}
    if always:
        own = (v for bn in batch_norms_of(model) for v in bn.weights)
        state["weights"] += [v.path for v in own if v.name not in STATISTICS]
    restore_frozen(model, state)


def _is_frozen(layer, frozen):
    return all(v.path in frozen for v in layer.weights if v.name not in STATISTICS)


def batch_norms_of(model):
    """The batch norms of a model, in the order of its layers."""
    layers = model._flatten_layers(include_self=False)
    return [x for x in layers if isinstance(x, keras.layers.BatchNormalization)]
