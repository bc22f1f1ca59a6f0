"""`RunConfiguration`: all that decides how a training runs, checked when it is made."""
# ruff: noqa: RUF009  (`option` makes a field)

from __future__ import annotations

import dataclasses
import math
import numbers
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from effdet_keras._internal.extras import extra
from effdet_keras._internal.processes import ENGINES
from effdet_keras._internal.whole_files import replacing
from effdet_keras._internal.yaml_text import parse_value, read_yaml, to_yaml
from effdet_keras.augment.augmentation import Augmentation
from effdet_keras.augment.names import NAMES, augmentation_of, is_name
from effdet_keras.data.any_format import FORMATS
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.errors import (
    EffDetError,
    InvalidTypeError,
    InvalidValueError,
    check_argument,
    hint,
    require,
)
from effdet_keras.model.config import MODEL_NAMES, EfficientDetConfig
from effdet_keras.train import recipe
from effdet_keras.train.losses import DetectionLoss
from effdet_keras.train.matching import IoUMatching
from effdet_keras.train.recipe import Recipe

# Settings of the model that are fields of their own, or follow from the data.
_NOT_IN_MODEL_CONFIG = {
    "name": "`model`",
    "image_size": "`image_size`",
    "num_classes": "the classes of the dataset, or `class_names`",
}
# A run is as long as one of these says.
LENGTHS = ("epochs", "steps", "time_budget")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


# --- The kinds of values that fields have: how they are checked, and said in errors.


@dataclasses.dataclass(frozen=True)
class Kind:
    """The values that a field may have; `one | other` has those of both."""

    expected: str
    holds: Callable[[Any], bool]

    def __or__(self, other: Kind) -> Kind:
        return Kind(
            f"{self.expected}, or {other.expected}",
            lambda value: self.holds(value) or other.holds(value),
        )

    def check(self, field: str, value: Any) -> None:
        check_argument(self.holds(value), field, value, self.expected)


def one_of(*words: str) -> Kind:
    listed = ", ".join(map(repr, words))
    return Kind(listed, lambda value: isinstance(value, str) and value in words)


def whole(least: int) -> Kind:
    """The kind of whole numbers from `least`."""
    return Kind(
        f"a whole number of at least {least}",
        lambda value: _is_number(value, numbers.Integral) and value >= least,
    )


def number(words: str, holds: Callable[[float], bool]) -> Kind:
    return Kind(words, lambda value: _is_number(value) and holds(value))


def many(kind: Kind, words: str, count: int | None = None) -> Kind:
    """The kind of tuples of values of a kind: of `count`, or of any number."""

    def holds(value):
        if not isinstance(value, tuple) or not all(map(kind.holds, value)):
            return False
        return count is None or len(value) == count

    return Kind(words, holds)


AUTO = one_of("auto")
NOTHING = Kind("None", lambda value: value is None)
SWITCH = Kind("True or False", lambda value: isinstance(value, bool))
TEXT = Kind("text", lambda value: isinstance(value, str) and bool(value))
MAPPING = Kind("a mapping", lambda value: isinstance(value, dict))


def check_names(given: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    """Raises ValueError for the first name that is not known; says near ones."""
    known = list(known)
    for name in given:
        if name not in known:
            raise InvalidValueError(
                f"{what} has no field {name!r}.{hint(name, known)} It has: "
                f"{', '.join(known)}"
            )


def _is_number(value, kind=numbers.Real):
    is_kind = isinstance(value, kind) and not isinstance(value, bool)
    return is_kind and math.isfinite(value)


# --- Durations as people write them, "90s", "20m", "1.5h"; steps: "10,20", or 10.

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([smh])")
_STEP = re.compile(r"[1-9]\d*(,[1-9]\d*)?")


def seconds_of(duration: object) -> float | None:
    """The seconds of text such as "20m"; None of what is no duration above 0."""
    found = _AMOUNT.fullmatch(duration) if isinstance(duration, str) else None
    return (float(found[1]) * _SECONDS[found[2]] or None) if found else None


def in_words(seconds: float) -> str:
    """Seconds, as people write them."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def range_of_steps(value: object) -> tuple[int, int] | None:
    """The first and the last step that a value names; None if it names none."""
    if isinstance(value, str):
        value = tuple(map(int, value.split(","))) if _STEP.fullmatch(value) else ()
    pair = value if isinstance(value, tuple) else (value,)
    if len(pair) not in (1, 2) or any(type(step) is not int for step in pair):
        return None
    return (pair[0], pair[-1]) if 1 <= pair[0] <= pair[-1] else None


# --- What each field of a run may be.

_POSITIVE = number("a number above 0", lambda x: x > 0)
_PIXEL = number("a number from 0 to 255", lambda x: 0 <= x <= 255)
_SHARE = number("a number from 0 to 1", lambda x: 0 <= x <= 1)
_BELOW_ONE = number("a number of at least 0 and below 1", lambda x: 0 <= x < 1)
_PART = number("a number above 0 and below 1", lambda x: 0 < x < 1)
_SIZE = whole(1) | many(whole(1), "[height, width] in pixels", count=2)
_DURATION = Kind("a duration such as '90s', '20m' or '1.5h'", seconds_of)
_STEPS = Kind("a step such as 10, or steps such as '10,20'", range_of_steps)
_LINES = Kind("0, 1, 2", lambda value: type(value) is int and value in (0, 1, 2))
_NAMES = many(TEXT, "a list of names")
_AUGMENT = many(
    Kind("an augmentation", is_name) | MAPPING,
    f"a list of augmentations ({', '.join(NAMES)}; steps of the Object Detection API), "
    "each a name, or a mapping with `name` and arguments",
)


def option(kind: Kind, default: Any) -> Any:
    """A field of a run: its default, which it may always have, and other values."""
    if not kind.holds(default):
        kind = kind | NOTHING if default is None else AUTO | kind
    metadata = {"kind": kind}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def of_recipe(name: str) -> Any:
    """A field that `Recipe` declares and checks."""
    kind = Kind("what `Recipe` takes", lambda value: True)
    return option(kind, getattr(Recipe, name))


# --- The options of a run.


@dataclasses.dataclass(frozen=True)
class RunConfiguration:
    """How one training runs: data, model, recipe, length; every field is checked.

    `fine_tune` and `effdet-keras train` take it, and write it to the folder of the
    run as `configuration.yaml`, from which the same run can be started again. A
    field left at "auto", or at None where that says so, is chosen from the data.

    Args:
        data: string, the dataset's file or folder; None for datasets in memory.
        format, class_names: as in `ek.data.load`.
        train_split, validation_split, test_split: strings, names of splits. "auto" is
            "train"; "val", "valid" or "validation", or else a part of the training
            images; and "test", or else none. None for `test_split` is none.
        validation_fraction: float, that part, where there is no validation split.
        train_on_crowds: bool, whether to train `with_crowds_as_objects` (see
            `DetectionDataset`). Evaluation ignores crowds as ever.
        model: string, a preset such as "efficientdet-lite0", or the address or folder
            of a TF-Hub module.
        weights: string, what to start from: a key of published weights ("coco",
            "imagenet"), a file, a folder or an address; None for random weights.
            "auto" is "imagenet" where it can be had, and else random.
        checkpoint_type: "classification", "detection" or "full", what to take of
            `weights`, see `EfficientDet.load_pretrained`; None is all that fits.
        image_size: int or `(height, width)`; "auto" fits it to the boxes; None is the
            model's own.
        anchors: "auto" fits the anchors to the boxes, unless `model_config` has
            `anchor_scale` or `aspect_ratios`; None keeps the model's.
        model_config: dict, other fields of `EfficientDetConfig`.
        precision: "float32", "mixed_bfloat16" or "mixed_float16".
        distribute: None for one device; with TensorFlow "mirrored" for all graphics
            cards of this machine, or "multiworker" for the processes of a launcher,
            both with `sync_batch_norm`; "jax" for all devices and processes of JAX
            (docs/distributed.md). `batch_size` counts the images of all.
        recipe: "auto", "reference" or "tfod", see `EfficientDet.compile`, as are
            `optimizer`, `schedule`, `learning_rate`, `weight_decay`, `clip_norm`,
            `ema_decay`, `learning_rate_multipliers`, `accumulate_steps`,
            `grad_checkpoint`, `batch_norm_warmup`, `freeze`, `freeze_batch_norm`,
            `jit_compile`, `run_eagerly` and `steps_per_execution`.
        loss: dict, fields of `DetectionLoss`; empty for the recipe's loss.
        matching: dict, fields of `IoUMatching`; empty for the recipe's matching.
        adversarial: dict, fields of `AdvProp`, to train on adversarial images as well;
            empty for its defaults, None for clean images alone.
        quantize_aware: True, or a dict of arguments of `EfficientDet.quantize_aware`,
            to train for an int8 file; None or False for the float network.
        teacher: string, the archive of a trained model of the same classes, path or
            address, from which the run learns beside the annotations, see `distill`;
            None for none. `anchors="auto"` takes the teacher's.
        teacher_weight: float above 0, of that loss: the `weight` of `distill`.
        epochs: int; None is enough for 1,400 steps.
        steps: int, the steps of the whole training, in the place of `epochs`; those of
            more than one epoch are rounded up to whole epochs.
        time_budget: string, the time for the whole run, in the place of `epochs`:
            "90s", "20m", "1.5h". Some steps and an evaluation are measured first, and
            the length is chosen so that the run ends within it.
        batch_size: int, images per step; evaluation has batches of this size as well.
            "auto" is the largest that fits into memory, up to 16 (64 for 5,000
            images or more): it is measured.
        one_batch: bool, whether to train one step on one batch, not compiled, and
            evaluate as many images: a minute shows whether all parts work.
        seed: int, of weights, order and augmentation.
        deterministic: bool, whether TensorFlow uses operations alone that compute the
            same bits each time, which may be slower; it counts for the whole process.
        augment: list of augmentations, applied in this order: names in
            `ek.augment.NAMES` or of an `ek.augment.PreprocessingStep`, or, with other
            arguments, `{"name": "rotate", "degrees": 5.0}`; "auto" is the recipe's.
        flip_probability: float from 0 to 1.
        scale_jitter: `(lowest, highest)` factor on the image size; "auto" is the
            recipe's.
        pad_rgb: three floats, the color around training images that do not fill the
            input; None for the model's.
        postprocess: dict, fields of `Postprocess`.
        monitor: string, the number in the logs by which the best checkpoint is chosen;
            more is better, unless its name has "loss" in it.
        evaluate_every: int, epochs from one evaluation to the next; 0 evaluates
            nothing, not even at the end: then there is the last checkpoint alone.
        validation_losses: bool, whether an evaluation computes the losses as well, from
            the same forward pass.
        save_every_steps, save_every_minutes, keep: which checkpoints are written and
            stay, as in `ek.callbacks.CheckpointArchive`.
        tensorboard: bool, whether to write files for TensorBoard; "auto" where it is
            installed.
        profile: the steps to trace, such as "10,20" for a first and a last one, or 10;
            None for none. The trace lies in the folder of the run.
        verbose: "auto" prints one line per epoch, 1 a progress bar, 2 all numbers of
            each epoch, 0 nothing.

    Raises:
        ValueError, TypeError: If a field has a value that cannot be right, or two
            contradict.

    Example:
        >>> run = RunConfiguration(data="cells", model_config={"max_level": 5})
        >>> run.model, run.replace(batch_size=4).batch_size
        ('efficientdet-lite0', 4)
        >>> run.replace(epoch=30)
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: A run has no field 'epoch'. Did you \
mean 'epochs'? It has: data, format, ...
    """

    data: str | None = option(TEXT, None)
    format: str | None = option(one_of(*FORMATS), None)
    train_split: str = option(TEXT, "auto")
    validation_split: str = option(TEXT, "auto")
    test_split: str | None = option(TEXT | NOTHING, "auto")
    validation_fraction: float = option(_PART, 0.2)
    class_names: ClassNames | None = option(_NAMES | TEXT | MAPPING, None)
    train_on_crowds: bool = option(SWITCH, False)

    model: str = option(TEXT, "efficientdet-lite0")
    weights: str | None = option(TEXT | NOTHING, "auto")
    checkpoint_type: str | None = option(
        one_of("classification", "detection", "full"), None
    )
    image_size: int | tuple[int, int] | str | None = option(_SIZE | NOTHING, "auto")
    anchors: str | None = option(NOTHING, "auto")
    model_config: dict[str, Any] = option(MAPPING, {})
    precision: str = option(
        one_of("float32", "mixed_bfloat16", "mixed_float16"), "float32"
    )
    distribute: str | None = option(one_of(*ENGINES), None)

    recipe: str = option(one_of(*recipe.NAMES), "auto")
    optimizer: str | dict[str, Any] | None = option(TEXT | MAPPING, None)
    schedule: str | dict[str, Any] | None = option(TEXT | MAPPING, None)
    learning_rate: float | None = of_recipe("learning_rate")
    weight_decay: float | dict[str, float] | str | None = of_recipe("weight_decay")
    clip_norm: float | str | None = of_recipe("clip_norm")
    ema_decay: float | str | None = option(_BELOW_ONE | NOTHING, "auto")
    learning_rate_multipliers: dict[str, float] | str | None = of_recipe(
        "learning_rate_multipliers"
    )
    accumulate_steps: int = of_recipe("accumulate_steps")
    grad_checkpoint: bool = of_recipe("grad_checkpoint")
    batch_norm_warmup: bool | str = of_recipe("batch_norm_warmup")
    freeze: str | None = option(TEXT | NOTHING, "auto")
    freeze_batch_norm: bool = option(SWITCH, True)
    loss: dict[str, Any] = option(MAPPING, {})
    matching: dict[str, Any] = option(MAPPING, {})
    adversarial: dict[str, Any] | None = option(MAPPING, None)
    quantize_aware: bool | dict[str, Any] | None = option(SWITCH | MAPPING, None)
    teacher: str | None = option(TEXT, None)
    teacher_weight: float = option(_POSITIVE, 1.0)

    epochs: int | None = option(whole(1), None)
    steps: int | None = option(whole(1), None)
    time_budget: str | None = option(_DURATION, None)
    batch_size: int | str = option(AUTO | whole(1), 8)
    steps_per_execution: int = option(whole(1), 1)
    jit_compile: bool | str = option(SWITCH, "auto")
    run_eagerly: bool = option(SWITCH, False)
    one_batch: bool = option(SWITCH, False)
    seed: int = option(whole(0), 0)
    deterministic: bool = option(SWITCH, False)

    augment: tuple[str | dict[str, Any], ...] | str = option(_AUGMENT, "auto")
    flip_probability: float = option(_SHARE, 0.5)
    scale_jitter: tuple[float, float] | str = option(
        many(_POSITIVE, "[lowest, highest] factor", count=2), "auto"
    )
    pad_rgb: tuple[float, float, float] | None = option(
        many(_PIXEL, "three numbers from 0 to 255", count=3), None
    )
    postprocess: dict[str, Any] = option(MAPPING, {})

    monitor: str = option(TEXT, "AP")
    evaluate_every: int = option(whole(0), 1)
    validation_losses: bool = option(SWITCH, False)
    save_every_steps: int | None = option(whole(1), None)
    save_every_minutes: float | None = option(_POSITIVE, None)
    keep: int = option(whole(1), 1)
    tensorboard: bool | str = option(SWITCH, "auto")
    profile: str | int | tuple[int, int] | None = option(_STEPS, None)
    verbose: int | str = option(_LINES, "auto")

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = _plain(getattr(self, field.name))
            object.__setattr__(self, field.name, value)
            field.metadata["kind"].check(field.name, value)
        for is_so, message, names in self._contradictions():
            given = {name: getattr(self, name) for name in names}
            require(not is_so, message, **given)
        if self.quantization:
            known = extra("quantization:ARGUMENTS")
            check_names(self.quantization, known, "`quantize_aware`")
        if not self.is_hub_module:
            self._check_model()
        self.recipe_arguments()
        self.new_postprocess()
        self.new_augmentations()

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> RunConfiguration:
        """Makes it of a dict; an unknown name is an error that says near ones.

        Example:
            >>> RunConfiguration.from_dict({"seed": 3}).seed
            3
        """
        return cls().replace(**fields)

    @classmethod
    def read(cls, path: str | os.PathLike) -> RunConfiguration:
        """Reads a YAML file that has some of the fields, or all.

        Raises:
            OSError: If there is no such file.
            ValueError, TypeError: If it is not YAML, or a field is wrong.

        Example:
            >>> import pathlib, tempfile
            >>> path = pathlib.Path(tempfile.mkdtemp(), "run.yaml")
            >>> _ = path.write_text("learning_rate: 1e-3\\noptimizer: adamw\\n")
            >>> RunConfiguration.read(path).learning_rate
            0.001
        """
        content = read_yaml(path)
        try:
            return cls.from_dict({str(name): value for name, value in content.items()})
        except (InvalidValueError, InvalidTypeError) as error:
            raise type(error)(f"In '{os.fspath(path)}': {error}") from error

    def write(self, path: str | os.PathLike) -> None:
        """Writes all fields as a YAML file, which `read` reads.

        Example:
            >>> import tempfile
            >>> run = RunConfiguration(data="cells", image_size=(192, 256))
            >>> path = f"{tempfile.mkdtemp()}/run.yaml"
            >>> run.write(path)
            >>> RunConfiguration.read(path) == run
            True
        """
        with replacing(path) as partial:
            partial.write_text(to_yaml(self.to_dict()), encoding="utf-8")

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields, in types that YAML and JSON have.

        Example:
            >>> RunConfiguration(image_size=(192, 256)).to_dict()["image_size"]
            [192, 256]
        """
        names = (field.name for field in dataclasses.fields(self))
        return {name: _with_lists(getattr(self, name)) for name in names}

    def replace(self, **fields: Any) -> RunConfiguration:
        """Returns a copy with other values for some fields, checked as any.

        Example:
            >>> RunConfiguration().replace(freeze=None).freeze is None
            True
        """
        known = [field.name for field in dataclasses.fields(self)]
        check_names(fields, known, "A run")
        return dataclasses.replace(self, **fields)

    @property
    def is_hub_module(self) -> bool:
        """Whether `model` is the address or folder of a TF-Hub module."""
        if self.model in MODEL_NAMES:
            return False
        return bool(_ADDRESS.match(self.model)) or os.path.isdir(self.model)

    @property
    def monitor_mode(self) -> str:
        """The `mode` that goes with `monitor`: "min" for a loss, or else "max"."""
        return "min" if "loss" in self.monitor else "max"

    @property
    def has_best(self) -> bool:
        """Whether epochs have the number by which the best checkpoint is chosen."""
        return self.evaluate_every > 0 or "loss" in self.monitor

    @property
    def quantization(self) -> dict[str, Any] | None:
        """The arguments of `EfficientDet.quantize_aware`; None to train in float."""
        if isinstance(self.quantize_aware, dict):
            return self.quantize_aware
        return {} if self.quantize_aware else None

    def recipe_arguments(self) -> dict[str, Any]:
        """Returns the arguments of `EfficientDet.compile` that make the recipe."""
        names = [field.name for field in dataclasses.fields(Recipe)][1:]
        arguments = {name: getattr(self, name) for name in names}
        arguments |= {"loss": None, "matching": "auto", "adversarial": None}
        if self.loss:
            arguments["loss"] = _made(DetectionLoss, "loss", self.loss)
        if self.matching:
            arguments["matching"] = _made(IoUMatching, "matching", self.matching)
        if self.adversarial is not None:
            kind = extra("advprop:AdvProp")
            arguments["adversarial"] = _made(kind, "adversarial", self.adversarial)
        Recipe(name=self.recipe, **arguments)  # says what contradicts
        return {"recipe": self.recipe, **arguments}

    def new_postprocess(self) -> Postprocess:
        """Returns the `Postprocess` of `postprocess`."""
        return _made(Postprocess, "postprocess", self.postprocess)

    def new_augmentations(self) -> list[Augmentation]:
        """Returns the augmentations of `augment`; none of "auto"."""
        entries = () if self.augment == "auto" else self.augment
        return [augmentation_of(entry) for entry in entries]

    def _check_model(self):
        is_open = self.image_size in ("auto", None)
        size = {} if is_open else {"image_size": self.image_size}
        config = EfficientDetConfig.from_name(self.model, **size, **self.model_config)
        require(
            config.has_detection,
            "A run is judged by what it detects, and a model of segmentation alone has "
            "no boxes: train that with `model.fit`, see docs/segmentation.md",
            model_config=self.model_config,
        )

    def _contradictions(self):
        """Whether fields contradict each other, what to say, and which they are."""
        for name, instead in _NOT_IN_MODEL_CONFIG.items():
            yield (
                name in self.model_config,
                f"`model_config` has no {name!r}: that is {instead}",
                ["model_config"],
            )
        lengths = [name for name in LENGTHS if getattr(self, name) is not None]
        yield (
            len(lengths) > 1,
            "A training is as long as one of `epochs`, `steps` and `time_budget` says",
            lengths,
        )
        yield (
            self.distribute not in (None, "mirrored")
            and (self.batch_size == "auto" or self.time_budget is not None),
            "Processes that train together would each measure another "
            "`batch_size='auto'` or `time_budget`: give a number of images, and "
            "`epochs` or `steps`",
            ["distribute", "batch_size", "time_budget"],
        )
        yield (
            self.checkpoint_type is not None and self.weights in ("auto", None),
            "`checkpoint_type` says what to take of `weights`: name a file",
            ["checkpoint_type", "weights"],
        )
        yield (
            self.monitor.startswith("val_") and not self.validation_losses,
            "`monitor` is a loss of the validation split: set `validation_losses` to "
            "True too, or take 'AP'",
            ["monitor"],
        )
        yield (
            self.validation_losses and not self.evaluate_every,
            "`evaluate_every=0` evaluates nothing, and `validation_losses` are those "
            "of an evaluation: leave one of the two out",
            ["validation_losses", "evaluate_every"],
        )
        yield (
            self.quantization is not None and self.precision != "float32",
            "`quantize_aware` needs float32, whose digits tell 256 steps apart",
            ["precision"],
        )
        yield (
            self.teacher is not None and self.distribute is not None,
            "A `teacher` is asked on one device: leave `distribute` out",
            ["distribute"],
        )


def _made(cls, field, arguments):
    check_names(arguments, [f.name for f in dataclasses.fields(cls)], f"`{field}`")
    try:
        return cls(**arguments)
    except EffDetError:
        raise
    except TypeError as error:  # text where a number belongs
        raise InvalidTypeError(
            f"`{field}` has a value of a wrong type ({error}). "
            f"Received: {field}={arguments!r}"
        ) from error


def _plain(value):
    """Lists, as YAML has them, as tuples; mappings as our own dicts; paths as text."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _with_lists(value):
    if isinstance(value, tuple):
        return [_with_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_lists(item) for key, item in value.items()}
    return value


# --- Fields as the command line gives them: `--set field=value`.


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Reads "field=value", or "field.name=value" of a mapping, with values of YAML."""
    fields: dict[str, Any] = {}
    for text in texts:
        name, is_setting, value = text.partition("=")
        name = name.strip()
        if not is_setting or not name:
            raise InvalidValueError(
                "A setting is written FIELD=VALUE, such as epochs=20. "
                f"Received: {text!r}"
            )
        field, is_inner, key = name.partition(".")
        place = fields.setdefault(field, {}) if is_inner else fields
        key = key if is_inner else field
        if not isinstance(place, dict) or key in place:
            raise InvalidValueError(f"`{name}` is set twice. Received: {text!r}")
        place[key] = parse_value(value, of=key)
    return fields


def refuse_undone(where: str, undone: tuple[str, ...]) -> None:
    """Raises ValueError with the whole list of what is asked for and not done."""
    if undone:
        listed = "\n  ".join(undone)
        raise InvalidValueError(
            f"{where} asks for what is not done here:\n  {listed}\nTo go on without "
            "it, pass `ignore_unknown=True` (--ignore-unknown)."
        )
