"""`RunConfiguration`: every setting of a training run, checked on construction."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import os
import re
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from effdet_keras._internal.number_ranges import (
    SEEDS,
    check_number_fields,
    number,
    rising_pair,
    several,
    whole_number,
)
from effdet_keras._internal.old_names import with_new_names
from effdet_keras._internal.processes import ENGINES
from effdet_keras._internal.whole_files import write_text
from effdet_keras._internal.yaml_text import load_value, read_yaml, to_yaml
from effdet_keras.augment import Augmentation, augmentation_of
from effdet_keras.data.formats.label_map import ClassNames
from effdet_keras.data.known_formats import FORMATS
from effdet_keras.data.problems import ON_ERROR
from effdet_keras.data.split_groups import SPLIT_BY
from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.errors import (
    InvalidTypeError,
    InvalidValueError,
    check_argument,
    check_choice,
    check_fields,
    require,
)
from effdet_keras.export.registry import TARGETS
from effdet_keras.network.config import MODEL_NAMES, EfficientDetConfig
from effdet_keras.train.losses import DetectionLoss
from effdet_keras.train.matching import IoUMatching
from effdet_keras.train.new_classes import ALL_BUT_NEW_CLASSES
from effdet_keras.train.recipe import Auto, Recipe, RecipeFields

# At most one of these fields sets the length of a run.
LENGTHS = ("epochs", "steps", "time_budget")
# A run trains on `data`, or else on the files that these fields name.
FILE_PATTERNS = ("train_file_pattern", "val_file_pattern")
# Options of a field that is a size in pixels: one number, or `(height, width)`.
_SIZE: dict[str, Any] = {"whole": True, "form": "number or sequence", "count": 2}
# Fields that may be None. The command and YAML files write None as the word "none".
_MAY_BE_NONE = ("weights", "freeze", "test_split")


# --- Durations such as "90s", "20m" and "1.5h", and ranges of steps: "10,20", or 10.

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([smh])")


def seconds_of(duration: object) -> float | None:
    """Returns the seconds of text such as "20m"; None if it is no duration above 0."""
    found = _AMOUNT.fullmatch(duration) if isinstance(duration, str) else None
    return (float(found[1]) * _SECONDS[found[2]] or None) if found else None


def in_words(seconds: float) -> str:
    """Returns a duration in seconds as text with a unit, such as "90 s"."""
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def range_of_steps(value: int | str) -> tuple[int, int] | None:
    """Returns the first and last step that a value names; None if it is invalid."""
    steps = str(value).split(",")
    if len(steps) > 2 or not all(step.isdigit() for step in steps):
        return None
    first, last = int(steps[0]), int(steps[-1])
    return (first, last) if 1 <= first <= last else None


# --- The settings of a run.


@dataclasses.dataclass(frozen=True)
class RunConfiguration(RecipeFields):
    """Holds all settings of a training run: data, model, recipe and length.

    `fine_tune` and `effdet-keras train` take this configuration and write it to the
    folder of the run. Every field is checked on construction. A field with the value
    "auto", and a field whose None is described that way below, is chosen from the data.

    Args:
        data: string, file or folder of the dataset; None for datasets in memory.
        train_file_pattern, val_file_pattern: strings, used instead of `data`: the files
            to train on and to validate on. Each is anything that `ek.data.load` takes,
            such as "data/train-*.tfrecord". Without `val_file_pattern`, a part of the
            training images is kept for validation. There is no test split.
        format, class_names, on_error, unlabelled, reader_options: as in
            `ek.data.load`.
        train_split, validation_split, test_split: strings, names of splits. For
            training, "auto" is "train", or else the only split. For validation, it is
            "val", "valid" or "validation", or else a part of the training images. For
            the test split, it is "test", or else there is none. Other names with the
            same meaning, such as "train2017", are recognized, too. `test_split=None`
            uses no test split.
        validation_fraction: float, the fraction of the training images that is kept for
            validation if there is no validation split.
        split_by: string, which images then stay on the same side of that split: "auto"
            (near-duplicates and recordings), "hash", "name", "folder" or "image" (each
            image alone). These are the `groups` of `DetectionDataset.split`.
        train_on_crowds: bool, whether to train on crowd regions as if they were objects
            (`DetectionDataset.with_crowds_as_objects`). Evaluation ignores crowd
            regions in either case.
        model: string, a preset such as "efficientdet-lite0", or the address or folder
            of a TF-Hub module.
        weights: string, the initial weights: a key of published weights ("coco",
            "imagenet"), a file, a folder or an address. None or "none" is random
            weights. "auto" is "imagenet" if it is available, and otherwise random. For
            a TF-Hub module, "auto" is the module's own weights, and no other value is
            allowed.
        checkpoint_type: "classification", "detection" or "full": which part of
            `weights` to load, see `EfficientDet.load_pretrained`. None loads everything
            that fits.
        name_map: dict of strings, which maps names of arrays in the file `weights` to
            names of the model's weights, see `EfficientDet.load_pretrained`. A weight
            that gets an array neither by this map nor by the file's own names must be
            excluded by `checkpoint_type`.
        image_size: int or `(height, width)` in pixels. "auto" fits the size to the
            boxes. None is the model's own size. A TF-Hub module keeps its anchors, and
            it keeps its size unless a size is given. With
            `freeze="all-but-new-classes"`, "auto" is also the model's own size.
        anchors: "auto" fits the anchors to the boxes, unless `model_config` has
            `anchor_scale`, `aspect_ratios` or `num_scales`. None keeps the model's
            anchors.
        model_config: dict, other fields of `EfficientDetConfig`.
        precision: "float32", "mixed_bfloat16" or "mixed_float16".
        distribute: None for one device. With TensorFlow, "mirrored" uses all graphics
            cards of this machine, and "multiworker" uses the processes of a launcher;
            both turn on `sync_batch_norm`. "jax" uses all devices and processes of JAX
            (docs/distributed.md). `batch_size` is the number of images of all devices
            together.
        recipe: "auto", "reference" or "tfod", see `EfficientDet.compile`, which
            also documents the fields `optimizer`, `schedule`, `learning_rate`,
            `weight_decay`, `clip_norm`, `ema_decay`, `learning_rate_multipliers`,
            `gradient_multipliers`, `accumulate_steps`, `grad_checkpoint`, `loss_scale`,
            `batch_norm_warmup`, `freeze`, `freeze_batch_norm`, `jit_compile`,
            `run_eagerly` and `steps_per_execution`.
        loss: dict, fields of `DetectionLoss`; empty for the recipe's loss.
        matching: dict, fields of `IoUMatching`; empty for the recipe's matching.
        adversarial: dict, fields of `AdvProp`, to train on adversarial images as well.
            None trains on clean images only.
        quantize_aware: True, or a dict of arguments of `EfficientDet.quantize_aware`,
            to train for an int8 file. None or False trains the float network.
        teacher: string, path or address of the archive of a trained model with the same
            classes. The run learns from this model's outputs in addition to the
            annotations, see `distill`. None uses no teacher. With a teacher,
            `anchors="auto"` takes the teacher's anchors.
        teacher_weight: float above 0, the weight of the distillation loss: `weight` of
            `distill`.
        epochs: int; None is enough epochs for 1,400 steps.
        steps: int, number of steps of the whole training, used instead of `epochs`. If
            this is more than one epoch, it is rounded up to whole epochs.
        time_budget: string, the time for the whole run, used instead of `epochs`:
            "90s", "20m", "1.5h". The run first measures some steps and an evaluation,
            and then chooses its length such that it ends within this time.
        batch_size: int, images per step, and also per batch of an evaluation. "auto"
            measures the largest batch that fits into memory, up to 16 (64 for a dataset
            of 5,000 images or more).
        one_batch: bool, whether to train one uncompiled step on one batch, and to
            evaluate on as many images. This shows within a minute whether all parts
            work.
        seed: int below 2 ** 32, for initial weights, the order of images, and
            augmentation.
        deterministic: bool, whether TensorFlow uses only operations that give the same
            bits every time. They may be slower. The setting applies to the whole
            process.
        balance: float in (0, 1], or "auto", to train on images of rare classes more
            often, see `DetectionDataset.batches`. None uses each image once per epoch.
        augment: list of augmentations, applied in this order. An entry is a name in
            `ek.augment.NAMES`, the name of an `ek.augment.PreprocessingStep`, or a
            mapping with arguments: `{"name": "rotate", "degrees": 5.0}`. "auto" is the
            recipe's list.
        flip_probability: float from 0 to 1, probability of a horizontal flip.
        scale_jitter: `(lowest, highest)` factor on the image size; "auto" is the
            recipe's.
        target_size: int or `(height, width)` in pixels, the size that `scale_jitter`
            multiplies instead of the image size. None is the image size.
        pad_rgb: three floats from 0 to 255, the color around training images that do
            not fill the input. None is the model's.
        postprocess: dict, fields of `Postprocess`. Fields that are not given are those
            stored in the file of a loaded detector, or else the defaults.
        monitor: string, the logged number that chooses the best checkpoint. Larger is
            better, unless it is a loss such as "val_loss".
        patience: int, number of evaluations without a better `monitor` after which the
            training stops, as in `keras.callbacks.EarlyStopping`. None never stops
            early. Use it with a constant learning rate: with the recipe's schedule,
            most trainings are best at their end.
        evaluate_every: int, number of epochs from one evaluation to the next. With 0,
            the run evaluates nothing, not even at the end, and only keeps the last
            checkpoint.
        validation_losses: bool, whether an evaluation also computes the losses, from
            the same forward pass.
        save_every_steps, save_every_minutes, keep, keep_every_hours: which checkpoints
            are written and kept, as in `ek.callbacks.CheckpointArchive`.
        tensorboard: bool, whether to write files for TensorBoard. "auto" writes them if
            TensorBoard is installed.
        gradient_summary_every: int, number of steps from one summary of the norms of
            the gradients of all variables to the next, see
            `effdet_keras.extras.step_summary.GradientSummary`. None writes none. This
            field and the next one need TensorBoard.
        input_summary_every: int, number of steps from one summary of the images that
            the network receives in training to the next, see
            `effdet_keras.extras.step_summary.InputSummary`. None writes none.
        profile: the steps to trace: one step, such as 10, or a first and a last step,
            such as "10,20".
        export: string, a target of `EfficientDet.export`. The untrained model is
            exported before the first epoch, so that a failure shows at once. The best
            checkpoint is exported at the end, to the subfolder `export`. None exports
            nothing.
        verbose: "auto" prints one line per epoch, 1 a progress bar, 2 all numbers of
            each epoch, 0 nothing.

    Raises:
        ValueError, TypeError: If the value or the type of a field is not allowed, or if
            two fields contradict each other.

    Example:
        >>> run = RunConfiguration(data="cells", model_config={"max_level": 5})
        >>> run.model, run.replace(batch_size=4).batch_size
        ('efficientdet-lite0', 4)
        >>> run.replace(epoch=30)
        Traceback (most recent call last):
            ...
        effdet_keras.errors.InvalidValueError: A run has no field 'epoch'. Did you \
mean 'epochs'? It has: data, ...
    """

    data: str | None = None
    train_file_pattern: str | None = None
    val_file_pattern: str | None = None
    format: str | None = None
    train_split: str = "auto"
    validation_split: str = "auto"
    test_split: str | None = "auto"
    validation_fraction: float = number(0.2, "(0, 1)")
    split_by: str = "auto"
    class_names: ClassNames | None = None
    on_error: str = "auto"
    unlabelled: str | None = None
    reader_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    train_on_crowds: bool = False

    model: str = "efficientdet-lite0"
    weights: str | None = "auto"
    checkpoint_type: Literal["classification", "detection", "full"] | None = None
    name_map: dict[str, str] = dataclasses.field(default_factory=dict)
    image_size: int | tuple[int, int] | Auto | None = number(
        "auto", "[1, inf)", **_SIZE, others=(None,)
    )
    anchors: Auto | None = "auto"
    model_config: dict[str, Any] = dataclasses.field(default_factory=dict)
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    distribute: str | None = None

    recipe: str = "auto"
    loss: dict[str, Any] = dataclasses.field(default_factory=dict)
    matching: dict[str, Any] = dataclasses.field(default_factory=dict)
    adversarial: dict[str, Any] | None = None
    quantize_aware: bool | dict[str, Any] | None = None
    teacher: str | None = None
    teacher_weight: float = number(1.0, "(0, inf)")

    epochs: int | None = whole_number(None, "[1, inf)")
    steps: int | None = whole_number(None, "[1, inf)")
    time_budget: str | None = None
    batch_size: int | Auto = whole_number(8, "[1, inf)", others=("auto",))
    steps_per_execution: int = whole_number(1, "[1, inf)")
    jit_compile: bool | Auto = "auto"
    run_eagerly: bool = False
    one_batch: bool = False
    seed: int = whole_number(0, SEEDS)
    deterministic: bool = False

    balance: float | Auto | None = number(None, "(0, 1]", others=(None, "auto"))
    augment: tuple[str | dict[str, Any], ...] | Auto = "auto"
    flip_probability: float = number(0.5, "[0, 1]")
    scale_jitter: tuple[float, float] | Auto = rising_pair("auto", "(0, inf)")
    target_size: int | tuple[int, int] | None = number(None, "[1, inf)", **_SIZE)
    pad_rgb: tuple[float, float, float] | None = several(None, "[0, 255]", count=3)
    postprocess: dict[str, Any] = dataclasses.field(default_factory=dict)

    monitor: str = "AP"
    patience: int | None = whole_number(None, "[1, inf)")
    evaluate_every: int = whole_number(1, "[0, inf)")
    validation_losses: bool = False
    save_every_steps: int | None = whole_number(None, "[1, inf)")
    save_every_minutes: float | None = number(None, "(0, inf)")
    keep: int = whole_number(1, "[1, inf)")
    keep_every_hours: float | None = number(None, "(0, inf)")
    tensorboard: bool | Auto = "auto"
    gradient_summary_every: int | None = whole_number(None, "[1, inf)")
    input_summary_every: int | None = whole_number(None, "[1, inf)")
    profile: str | int | None = None
    export: str | None = None
    verbose: Literal["auto", 0, 1, 2] = "auto"

    def __post_init__(self):
        for name, kind in _kinds().items():
            value = _normalized(getattr(self, name))
            value = None if name in _MAY_BE_NONE and value == "none" else value
            object.__setattr__(self, name, value)
            expected = self.__dataclass_fields__[name].type.replace("Auto", "'auto'")
            expected = re.sub(r"Literal\[(.*?)\]", r"\1", expected)
            check_argument(_is_of(value, kind), name, value, expected)
        check_number_fields(self)
        self._check_together()
        if self.quantization:
            from effdet_keras.extras.quantization import ARGUMENTS as known

            check_fields(self.quantization, known, "`quantize_aware`")
        if not self.is_hub_module:
            self._check_model()
        self.recipe_arguments()
        self.new_postprocess()
        self.new_augmentations()

    @classmethod
    def read(cls, path: str | os.PathLike) -> RunConfiguration:
        """Reads a YAML file that sets some or all of the fields.

        Raises:
            OSError: If there is no such file.
            ValueError, TypeError: If it is not YAML, or the value of a field is wrong.

        Example:
            >>> import pathlib, tempfile
            >>> path = pathlib.Path(tempfile.mkdtemp(), "run.yaml")
            >>> _ = path.write_text("learning_rate: 1e-3\\noptimizer: adamw\\n")
            >>> RunConfiguration.read(path).learning_rate
            0.001
        """
        content = read_yaml(path)
        try:
            return cls().replace(**content)
        except (InvalidValueError, InvalidTypeError) as error:
            raise type(error)(f"In '{os.fspath(path)}': {error}") from error

    def write(self, path: str | os.PathLike) -> None:
        """Writes all fields to a YAML file that `read` can read.

        Example:
            >>> import tempfile
            >>> run = RunConfiguration(data="cells", image_size=(192, 256))
            >>> path = f"{tempfile.mkdtemp()}/run.yaml"
            >>> run.write(path)
            >>> RunConfiguration.read(path) == run
            True
        """
        write_text(path, to_yaml(self.to_dict()))

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields as a dict of types that YAML and JSON have.

        Example:
            >>> RunConfiguration(image_size=(192, 256)).to_dict()["image_size"]
            [192, 256]
        """
        return {name: _with_lists(getattr(self, name)) for name in _kinds()}

    def replace(self, **fields: Any) -> RunConfiguration:
        """Returns a copy in which some fields have other values, checked like any.

        Example:
            >>> RunConfiguration().replace(freeze=None).freeze is None
            True
        """
        check_fields(fields, _kinds(), "A run")
        return dataclasses.replace(self, **fields)

    @property
    def is_hub_module(self) -> bool:
        """Whether `model` is the address or folder of a TF-Hub module."""
        is_named = self.model in MODEL_NAMES
        return not is_named and ("://" in self.model or os.path.isdir(self.model))

    @property
    def monitor_mode(self) -> str:
        """The `mode` of callbacks for `monitor`: "min" for a loss, or else "max"."""
        return "min" if self.monitors_loss else "max"

    @property
    def monitors_loss(self) -> bool:
        """Whether `monitor` is a loss. "AP/floss" is not: it is the AP of a class."""
        name = f"_{self.monitor}"
        return name.endswith("_loss") and "/" not in name

    @property
    def has_best(self) -> bool:
        """Whether the run logs the number by which the best checkpoint is chosen."""
        return self.evaluate_every > 0 or self.monitors_loss

    @property
    def quantization(self) -> dict[str, Any] | None:
        """The arguments of `EfficientDet.quantize_aware`; None to train in float."""
        if isinstance(self.quantize_aware, dict):
            return self.quantize_aware
        return {} if self.quantize_aware else None

    def recipe_arguments(self) -> dict[str, Any]:
        """Returns the arguments of `EfficientDet.compile` that define the recipe."""
        of_recipe = RecipeFields.__dataclass_fields__
        arguments = {name: getattr(self, name) for name in of_recipe}
        arguments |= {"loss": None, "matching": "auto", "adversarial": None}
        if self.loss:
            arguments["loss"] = _made(DetectionLoss, "loss", self.loss)
        if self.matching:
            arguments["matching"] = _made(IoUMatching, "matching", self.matching)
        if self.adversarial is not None:
            from effdet_keras.extras.advprop import AdvProp as kind

            arguments["adversarial"] = _made(kind, "adversarial", self.adversarial)
        Recipe(name=self.recipe, **arguments)  # raises if arguments contradict
        return {"recipe": self.recipe, **arguments}

    def new_postprocess(self, others: Postprocess | None = None) -> Postprocess:
        """Returns a `Postprocess` with the fields that `postprocess` sets.

        Args:
            others: `Postprocess`, from which the other fields are taken; None for the
                defaults.
        """
        fields = {} if others is None else others.get_config()
        return _made(Postprocess, "postprocess", {**fields, **self.postprocess})

    def new_augmentations(self) -> list[Augmentation]:
        """Returns the augmentations of `augment`; an empty list for "auto"."""
        entries = () if self.augment == "auto" else self.augment
        return [augmentation_of(entry) for entry in entries]

    def _check_model(self):
        own = {"name", "image_size", "num_classes"} & set(self.model_config)
        rule = "`model`, `image_size`, `class_names` are fields, not in `model_config`"
        require(not own, rule, model_config=self.model_config)
        is_auto = self.image_size in ("auto", None)
        size = {} if is_auto else {"image_size": self.image_size}
        config = EfficientDetConfig.from_name(self.model, **size, **self.model_config)
        require(
            config.has_detection,
            "A run is evaluated by its boxes, and a model with only a segmentation "
            "head detects none: train it with `model.fit`, see docs/segmentation.md",
            model_config=self.model_config,
        )

    def _check_together(self):
        """Raises an error if a field is invalid, or if fields contradict each other."""
        check_choice("format", self.format, [*FORMATS, None])
        check_choice("split_by", self.split_by, SPLIT_BY)
        check_choice("on_error", self.on_error, ON_ERROR)
        check_choice("unlabelled", self.unlabelled, ["negative", "skip", None])
        check_choice("distribute", self.distribute, [*ENGINES, None])
        check_choice("export", self.export, [*TARGETS, None])
        self._check_file_patterns()
        if self.time_budget is not None:
            expected = "a duration such as '90s', '20m' or '1.5h'"
            is_right = seconds_of(self.time_budget) is not None
            check_argument(is_right, "time_budget", self.time_budget, expected)
        if self.profile is not None:
            expected = "a step such as 10, or steps such as '10,20'"
            is_right = range_of_steps(self.profile) is not None
            check_argument(is_right, "profile", self.profile, expected)
        summaries = {
            "gradient_summary_every": self.gradient_summary_every,
            "input_summary_every": self.input_summary_every,
        }
        require(
            self.tensorboard is not False or not any(summaries.values()),
            "The summaries of steps are written for TensorBoard: leave "
            "`tensorboard=False` out, or leave these out",
            tensorboard=self.tensorboard,
            **summaries,
        )
        lengths = {n: getattr(self, n) for n in LENGTHS if getattr(self, n) is not None}
        rule = (
            "The length of a training is given by only one of `epochs`, `steps` and "
            "`time_budget`"
        )
        require(len(lengths) < 2, rule, **lengths)
        require(
            not self.name_map or self.weights not in ("auto", None),
            "`name_map` names arrays of a file: set `weights` to its path",
            weights=self.weights,
        )
        require(
            self.checkpoint_type is None or self.weights not in ("auto", None),
            "`checkpoint_type` chooses which variables of `weights` are loaded: set "
            "`weights` too, such as weights='coco'",
            checkpoint_type=self.checkpoint_type,
            weights=self.weights,
        )
        require(
            not self.is_hub_module
            or (self.weights == "auto" and self.freeze != ALL_BUT_NEW_CLASSES),
            "The training of a TF-Hub module starts from the module's weights, and "
            "all of its classes are new: leave `weights` and "
            f"freeze={ALL_BUT_NEW_CLASSES!r} out, or give a preset as `model`",
            model=self.model,
            weights=self.weights,
            freeze=self.freeze,
        )
        require(
            self.distribute in (None, "mirrored")
            or (self.batch_size != "auto" and self.time_budget is None),
            "In a training of several processes, each would choose another "
            "`batch_size='auto'` or length for `time_budget`: give `batch_size` as a "
            "number of images, and `epochs` or `steps` as the length",
            distribute=self.distribute,
        )
        require(
            self.validation_losses or not self.monitor.startswith("val_"),
            "`monitor` needs the losses of the validation split: set "
            "validation_losses=True, or monitor='AP'",
            monitor=self.monitor,
        )
        require(
            self.patience is None or self.has_best,
            "`patience` counts evaluations, and this run has none: leave it out, or "
            "set `evaluate_every` to 1 or more",
            patience=self.patience,
            evaluate_every=self.evaluate_every,
        )
        require(
            self.quantization is None or self.precision == "float32",
            "`quantize_aware` needs precision='float32': a lower precision cannot "
            "represent the 256 quantization steps",
            precision=self.precision,
        )
        require(
            self.teacher is None or self.distribute is None,
            "A `teacher` works on one device only: leave `distribute` out",
            distribute=self.distribute,
        )

    def _check_file_patterns(self):
        """Raises if file patterns are incomplete, or used with `data` or splits."""
        patterns = {name: getattr(self, name) for name in FILE_PATTERNS}
        patterns = {name: value for name, value in patterns.items() if value}
        if not patterns:
            return
        rule = "`train_file_pattern` takes the place of `data`: give one of the two"
        require(self.data is None, rule, data=self.data, **patterns)
        rule = (
            "`val_file_pattern` needs files to train on: set `train_file_pattern` too"
        )
        require("train_file_pattern" in patterns, rule, **patterns)
        splits = ("train_split", "validation_split", "test_split")
        splits = {name: getattr(self, name) for name in splits}
        require(
            set(splits.values()) <= {"auto", None},
            "Files that are named by patterns have no splits to choose from: leave "
            "`train_split`, `validation_split` and `test_split` out",
            **splits,
        )


@functools.cache
def _kinds():
    """Returns the type of each field: first the run's own fields, then the recipe's."""
    kinds = typing.get_type_hints(RunConfiguration)
    return {name: kinds[name] for name in {**RunConfiguration.__annotations__, **kinds}}


def _is_of(value, kind):
    """Returns whether a value is of an annotated type; a bool is not a number."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return any(_is_of(value, part) for part in parts)
    if origin is Literal:
        return any(value is part or value == part for part in parts)
    if kind in (int, float):
        number = numbers.Integral if kind is int else numbers.Real
        is_number = isinstance(value, number) and not isinstance(value, bool)
        return is_number and math.isfinite(value)
    if origin is tuple:
        is_tuple = isinstance(value, tuple)
        kinds = parts[:1] * len(value) if is_tuple and Ellipsis in parts else parts
        is_long = is_tuple and len(value) == len(kinds)
        return is_long and all(map(_is_of, value, kinds))
    return isinstance(value, origin or kind)


def _made(cls, field, arguments):
    arguments = with_new_names(cls, arguments)
    check_fields(arguments, [f.name for f in dataclasses.fields(cls)], f"`{field}`")
    return cls(**arguments)


def _normalized(value):
    """Converts lists of YAML to tuples, mappings to dicts, and paths to strings."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_normalized, value))
    if isinstance(value, Mapping):
        return {key: _normalized(item) for key, item in value.items()}
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _with_lists(value):
    if isinstance(value, tuple):
        return [_with_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_lists(item) for key, item in value.items()}
    return value


# --- Fields from the command line: `--set field=value`.


def parse_settings(
    texts: Iterable[str], flags: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Parses settings "field=value", or "field.name=value" for a field with a mapping.

    Values are parsed as YAML.

    Args:
        texts: strings, the settings.
        flags: dict of fields that have a command-line flag of their own and were given
            by it.

    Returns:
        Dict of all these fields.

    Raises:
        ValueError: If a text is not a setting, or a field gets two different values.

    Example:
        >>> parse_settings(["epochs=20", "model_config.max_level=5"])
        {'epochs': 20, 'model_config': {'max_level': 5}}
    """
    fields = dict(flags or {})
    sources = {name: [_flag_of(name)] for name in fields}
    for text in texts:
        name, is_setting, value = text.partition("=")
        rule = "A setting is written FIELD=VALUE, such as epochs=20"
        require(is_setting, rule, setting=text)
        field, is_inner, key = name.strip().partition(".")
        found = load_value(field, value)
        found = {key: found} if is_inner else found
        before = sources.setdefault(field, [])
        if before:
            found = _together(field, fields[field], found, before, text)
        fields[field] = found
        before.append(f"--set {text}")
    return fields


def _flag_of(field):
    return "DATA" if field == "data" else f"--{field.replace('_', '-')}"


def _together(field, first, second, sources, text):
    """Returns the value of a field given twice; raises if the two values differ."""
    mappings = [one for one in (first, second) if isinstance(one, Mapping)]
    if len(mappings) == 2 and all(
        _is_same(field, first[key], second[key]) for key in first.keys() & second.keys()
    ):
        return {**first, **second}
    if len(mappings) == 1 and (first is True or second is True):
        return mappings[0]  # True turns it on, and the mapping has its options
    if _is_same(field, first, second):
        return first
    raise InvalidValueError(
        f"`{field}` is given by `{'`, `'.join(sources)}` and by `--set {text}`, with "
        "different values: leave one of them out."
    )


def _is_same(field, first, second):
    first, second = _normalized(first), _normalized(second)
    if field in _MAY_BE_NONE:
        first, second = (None if one == "none" else one for one in (first, second))
    return first == second


def refuse_unsupported(where: str, unsupported: tuple[str, ...]) -> None:
    """Raises ValueError that lists all unsupported options, if there are any."""
    if unsupported:
        listed = "\n  ".join(unsupported)
        raise InvalidValueError(
            f"{where} has options that are not supported:\n  {listed}\nTo continue "
            "without them, pass `ignore_unknown=True` (--ignore-unknown)."
        )
