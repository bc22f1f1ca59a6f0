"""The `data_augmentation_options` of a `pipeline.config`."""

from __future__ import annotations

from typing import Any

from effdet_keras._internal.proto_text import Message
from effdet_keras.augment.preprocessing import STEPS
from effdet_keras.tfod.pipeline_training import Note

# What is done in any case.
_ALWAYS = (
    *("normalize_image", "subtract_channel_mean", "resize_image"),
    *("scale_boxes_to_pixel_coordinates", "random_resize_method"),
)
_FLIP, _SQUARE = "random_horizontal_flip", "random_scale_crop_and_pad_to_square"
# Fields that only one value has a place for here.
_ONLY = {"clip_boxes": "true", "jitter_mode": "DEFAULT"}


def augmentation(train: Message, note: Note) -> dict[str, Any]:
    """All steps in their order, with their parameters; what is not there is off.

    Flip and scale jitter are fields of their own where they come last, as in the API's
    templates, because a run does them last.

    Args:
        train: the message `train_config`.
        note: `Note`.

    Returns:
        Dict of fields of `RunConfiguration`.
    """
    fields: dict[str, Any] = {"flip_probability": 0.0, "scale_jitter": (1.0, 1.0)}
    entries: list[Any] = []
    for option in train.messages("data_augmentation_options"):
        for kind in option.names:
            entries += _entries(option, kind, note)
    if entries and entries[-1]["name"] == _SQUARE:
        square = entries.pop()
        fields["scale_jitter"] = (square["scale_min"], square["scale_max"])
        fields["pad_rgb"] = (0.0, 0.0, 0.0)
    if entries and entries[-1]["name"] == _FLIP:
        fields["flip_probability"] = entries.pop()["probability"]
    names_alone = [one["name"] if len(one) == 1 else one for one in entries]
    return {**fields, "augment": tuple(names_alone)}


def _entries(option, kind, note):
    """The entry of `augment` that one step becomes; none for what needs none."""
    step = option.message(kind)
    if kind == "autoaugment_image":
        return [{"name": f"auto_augment_{step.text('policy_name', 'v0')}"}]
    if kind in STEPS:
        return [{"name": kind, **_parameters(step, STEPS[kind][1], note)}]
    step.take_all()
    if kind not in _ALWAYS:
        note(option.place_of(kind), "{...}", "there is no such augmentation here")
    return []


def _parameters(step, defaults, note, is_operation=False):
    """The fields of a step, each read as its default is; and of its operations."""
    for name, only in _ONLY.items():
        if step.text(name, only) != only:
            note(step.place_of(name), step.text(name, only), f"always {only}")
    parameters = {
        name: _parameter(step, name, default, is_operation)
        for name, default in defaults.items()
        if name != "operations"
    }
    if step.has("operations"):
        each, first = step.messages("operations"), defaults["operations"][0]
        parameters["operations"] = tuple(
            _parameters(o, first, note, True) for o in each
        )
    return parameters


def _parameter(step, name, default, is_operation):
    if name == "pad_color" and is_operation:
        return tuple(step.number(f"{name}_{channel}", 0.0) for channel in "rgb")
    if isinstance(default, tuple):
        return tuple(step.numbers(name)) or default
    read = step.number if isinstance(default, float) else step.whole
    # The fields of an operation have no defaults there: they are 0.
    return read(name, 0.0 if is_operation else default)
