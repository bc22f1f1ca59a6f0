"""A `pipeline.config` of the TF Object Detection API, as fields of a run.

docs/migrating_from_tfod.md has the table of its fields. Where a field is absent, its
default there counts, not the one here.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import Any

from effdet_keras._internal.local_paths import is_remote, local_path
from effdet_keras._internal.proto_text import Message, parse
from effdet_keras._internal.remote_path import local_copy, path_of
from effdet_keras.errors import InvalidValueError
from effdet_keras.tfod.pipeline_augmentation import augmentation
from effdet_keras.tfod.pipeline_loss import loss, matching, postprocess, weight_decay
from effdet_keras.tfod.pipeline_model import EXTRACTOR, model, model_config
from effdet_keras.tfod.pipeline_places import (
    NO_PLACE,
    NOTED,
    OF_DETECTION,
    SILENT,
    is_as_here,
    place_of,
)
from effdet_keras.tfod.pipeline_training import optimizer, overall

CONFIG_NAME = "pipeline.config"  # as exporter and training of that API write it
_UNKNOWN = "this field is not known here"


@dataclasses.dataclass(frozen=True)
class PipelineReading:
    """What a `pipeline.config` means here.

    Args:
        fields: dict, fields of `RunConfiguration`.
        notes: strings, a line for each field that has no place here or means
            something else.
        undone: those of the notes that change training or detection, so that what the
            file asks for is not done.
        frozen, trained: strings, the regular expressions of `freeze_variables` and
            `update_trainable_variables`; see `weights.kinds.tfod.freezing_of`.
    """

    fields: dict[str, Any]
    notes: tuple[str, ...]
    undone: tuple[str, ...]
    frozen: tuple[str, ...]
    trained: tuple[str, ...]


def read_pipeline_config(path: str | os.PathLike) -> PipelineReading:
    """Reads the `pipeline.config` of an EfficientDet.

    Args:
        path: path or address of the file, or of the folder that it is in.

    Returns:
        `PipelineReading`. Its recipe is "tfod", with everything that the file
        says or leaves at a default of the Object Detection API.

    Raises:
        OSError: If there is no such file.
        ValueError: If it is not in the text format of protocol buffers, is the config
            of another kind of model, or a field has a wrong value.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "pipeline.config")
        >>> _ = path.write_text("model { faster_rcnn { num_classes: 3 } }")
        >>> try:
        ...     read_pipeline_config(path)
        ... except ValueError as error:
        ...     print(error)
        '...pipeline.config': this is the config of a `faster_rcnn`. Only those ...
    """
    path = _file_at(path)
    return _parsed(path, lambda config: _Reading(config).result())


def _file_at(path):
    """The file that a path or address means: itself, or the one in this folder."""
    if is_remote(path):
        path = path_of(path)
        return local_copy(path / CONFIG_NAME if path.is_dir() else path)
    path = local_path(path, "`pipeline_config`")
    if path.is_dir():
        path = path / CONFIG_NAME
    if not path.is_file():
        raise FileNotFoundError(f"There is no `{CONFIG_NAME}` at '{path}'")
    return path


def _parsed(path, read):
    """What `read` makes of the file's message; errors name the file."""
    try:
        return read(parse(path.read_text(encoding="utf-8")))
    except UnicodeDecodeError:
        raise InvalidValueError(f"'{path}' is not a text file.") from None
    except RecursionError:
        raise InvalidValueError(f"'{path}': messages in messages, too deep.") from None
    except InvalidValueError as error:
        raise InvalidValueError(f"'{path}': {error}") from error


@dataclasses.dataclass(frozen=True)
class PipelineModel:
    """The model that a `pipeline.config` describes.

    Args:
        path: `pathlib.Path` of the file.
        config: dict of fields of `EfficientDetConfig`, with `name`, the nearest
            preset, and without `num_classes`.
        num_classes: int.
        postprocess: dict of fields of `Postprocess`.
        label_map: string, the path of the label map that the file names; "" for none.
        has_background_class: bool, whether the class head has one output more, first.
        notes: strings, what of the model means something else here.
        undone: those of the notes that change what it detects.
    """

    path: pathlib.Path
    config: dict[str, Any]
    num_classes: int
    postprocess: dict[str, Any]
    label_map: str
    has_background_class: bool
    notes: tuple[str, ...]
    undone: tuple[str, ...]


def read_pipeline_model(path: str | os.PathLike) -> PipelineModel:
    """Reads what the `pipeline.config` of an EfficientDet says of its network.

    Args:
        path: path or address of the file, or of the folder that it is in.

    Returns:
        `PipelineModel`.

    Raises:
        OSError, ValueError: As of `read_pipeline_config`.

    Example:
        >>> read_pipeline_model("nowhere/pipeline.config")
        Traceback (most recent call last):
            ...
        FileNotFoundError: ...
    """
    path = _file_at(path)
    return _parsed(path, lambda config: _Reading(config).model_alone(path))


def refuse_undone(where: str, undone: tuple[str, ...]) -> None:
    """Raises ValueError with the whole list of what is asked for and not done.

    Args:
        where: string, what asks for it.
        undone: strings, of a reading.
    """
    if undone:
        listed = "\n  ".join(undone)
        raise InvalidValueError(
            f"{where} asks for what is not done here:\n  {listed}\nTo go on without "
            "it, pass `ignore_unknown=True` (--ignore-unknown)."
        )


class _Reading:
    """Turns the messages into fields; notes what has no place."""

    def __init__(self, config: Message) -> None:
        self.config = config
        self.ssd = _ssd(config)
        self.notes: list[str] = []
        self.undone: list[str] = []

    def note(
        self, place: str, value: Any, reason: str, *, is_done: bool = False
    ) -> None:
        self.notes.append(f"{place}={value}: {reason}")
        if not is_done:
            self.undone.append(self.notes[-1])

    def result(self):
        train = self.config.message("train_config")
        fields: dict[str, Any] = {
            "recipe": "tfod",
            "anchors": None,
            **model(self.ssd, self.note),
            "loss": loss(self.ssd, self.note),
            "matching": matching(self.ssd, self.note),
            "postprocess": postprocess(self.ssd, self.note),
            **weight_decay(self.config, self.note),
            **overall(self.config, self.note),
            **optimizer(train, self.note),
            **augmentation(train, self.note),
            **self.classes(),
        }
        frozen = train.texts("freeze_variables")
        trained = train.texts("update_trainable_variables")
        self.leftovers()
        told = (self.notes, self.undone, frozen, trained)
        return PipelineReading(fields, *map(tuple, told))

    def model_alone(self, path):
        config = model_config(self.ssd, self.note)
        num_classes = self.ssd.whole("num_classes", None)
        if num_classes is None or num_classes < 1:
            place = self.ssd.place_of("num_classes")
            raise InvalidValueError(
                f"`{place}` must be 1 or more. Received: {num_classes}"
            )
        reader = self.config.message("train_input_reader")
        of_postprocess = postprocess(self.ssd, self.note)
        self.leftovers(OF_DETECTION)
        return PipelineModel(
            path=path,
            config=config,
            num_classes=num_classes,
            postprocess=of_postprocess,
            label_map=reader.text("label_map_path", ""),
            has_background_class=self.ssd.switch("add_background_class", True),
            notes=tuple(self.notes),
            undone=tuple(self.undone),
        )

    def classes(self):
        """The label map, where it is on this machine."""
        reader = self.config.message("train_input_reader")
        path = reader.text("label_map_path", "")
        if not path:
            return {}
        if not os.path.isfile(path):
            place = reader.place_of("label_map_path")
            why = "there is no such file; names are those of the data"
            self.note(place, path, why, is_done=True)
            return {}
        return {"class_names": path}

    def leftovers(self, places=None):
        """Notes each field that nobody asked for; only those of `places`, if given."""
        told = set()
        for path, value in self.config.left():
            place = place_of(path)
            if place in SILENT or (places is not None and place not in places):
                continue
            same, reason = NO_PLACE.get(place, (None, _UNKNOWN))
            if is_as_here(value, same):
                continue
            is_whole = place is None or path.endswith(place)
            if not is_whole:  # something in a message, which is told once
                path, value = path[: path.index(place) + len(place)], "{...}"
            if (path, value) not in told:
                told.add((path, value))
                self.note(path, value, reason, is_done=place in NOTED)


def _ssd(config):
    """The message of the model; refuses those of other kinds by name."""
    expected = (
        "Only those of an EfficientDet can be read: `model { ssd { ... } }` with a "
        "`feature_extractor` of the type `ssd_efficientnet-b0_bifpn_keras`, b0 to b7."
    )
    model = config.message("model")
    if not model.has("ssd"):
        name = (model.names or ["file without a `model`"])[0]
        raise InvalidValueError(f"this is the config of a `{name}`. {expected}")
    ssd = model.message("ssd")
    kind = ssd.message("feature_extractor").text("type", "")
    if not EXTRACTOR.fullmatch(kind):
        raise InvalidValueError(f"this is the config of a `{kind}`. {expected}")
    for name, needed in (
        ("anchor_generator", "multiscale_anchor_generator"),
        ("box_coder", "faster_rcnn_box_coder"),
        ("box_predictor", "weight_shared_convolutional_box_predictor"),
    ):
        found = ssd.message(name).names
        if found and found != [needed]:
            raise InvalidValueError(
                f"`{ssd.place_of(name)}` must be a `{needed}`, as an EfficientDet has "
                f"it. Received: {found}"
            )
    return ssd
