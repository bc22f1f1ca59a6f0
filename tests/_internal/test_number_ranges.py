"""Numbers that cannot be right are refused, everywhere, where they are declared."""

import dataclasses
import importlib
import inspect
import math
import pkgutil
import re
import typing

import keras
import numpy as np
import pytest
from support.tiny import tiny_model

import effdet_keras as ek
from effdet_keras._internal.number_ranges import (
    NumberRange,
    check_number_fields,
    number,
    range_of,
    whole_number,
)
from effdet_keras.data.formats.arrays import from_arrays
from effdet_keras.train.recipe import Recipe
from effdet_keras.train.schedules import Warmup, WarmupCosine, WarmupPolynomial

# --- The mechanism.


@pytest.mark.parametrize(
    ("interval", "inside", "outside"),
    [
        ("[0, 1]", (0, 1, 0.5, np.float32(0.5), np.int64(1)), (-1e-9, 1.001)),
        ("(0, 1)", (1e-9, 0.999), (0, 1)),
        ("[1, inf)", (1, 1e300), (0.999, math.inf)),
        ("(-inf, 0)", (-1e300,), (0, -math.inf)),
    ],
)
def test_brackets_say_which_ends_belong_to_an_interval(interval, inside, outside):
    allowed = NumberRange(interval)
    assert all(map(allowed.contains, inside))
    assert not any(map(allowed.contains, outside))


def test_what_is_no_number_is_in_no_range():
    others = math.nan, True, np.True_, "1", None, [1], np.array([1]), {"a": 1}, 1j
    assert not any(map(NumberRange("(-inf, inf)").contains, others))
    assert not NumberRange("[0, 9]", whole=True).contains(2.0)


def test_other_values_and_other_forms_are_taken_where_they_are_declared():
    auto = NumberRange("[0, 1]", form="number or dict", others=("auto", None))
    assert all(map(auto.contains, ("auto", None, 0.5, {"kernel$": 1}, {})))
    assert not any(map(auto.contains, ("none", {"kernel$": 2}, [0.5])))
    pair = NumberRange("(0, inf)", form="sequence", count=2, rising=True)
    assert all(map(pair.contains, ((1, 2), [1, 1], np.array([0.5, 2.0]))))
    assert not any(map(pair.contains, ((2, 1), (1,), (1, 2, 3), (0, 1), "12")))
    pairs = NumberRange("(0, inf)", form="sequence with pairs")
    assert all(map(pairs.contains, ((1, 2, 0.5), ((1, 2), (2, 1)), ((1, 2), 3))))
    assert not any(map(pairs.contains, ((), ((1, 0),), ((1, 2, 3),), ((1, 2), 0))))


def test_the_error_says_what_is_expected_in_words():
    words = {
        "[0, 1]": "a number from 0 to 1",
        "(0, 1]": "a number above 0 and at most 1",
        "[0, 1)": "a number of at least 0 and below 1",
        "(-inf, inf)": "a number that is finite",
    }
    assert {i: NumberRange(i).description for i in words} == words
    several = NumberRange("[1, inf)", whole=True, form="number or sequence", count=2)
    expected = "a whole number of at least 1, or two whole numbers of at least 1"
    assert several.description == expected


def test_a_field_may_be_its_default_even_where_that_is_no_number():
    @dataclasses.dataclass
    class Options:
        share: float | None = number(None, "[0, 1]")
        count: int = whole_number(3, "[1, inf)")

        def __post_init__(self):
            check_number_fields(self)

    assert Options().share is None
    with pytest.raises(ValueError, match="`share` must be .* or None. Received: shar"):
        Options(share="none")
    with pytest.raises(ValueError, match="`count` must be a whole number of at least"):
        Options(count=None)


# --- Every field of every dataclass of the package.

_NUMERIC = re.compile(r"\b(int|float)\b")
# Dataclasses that the package itself makes: of files that readers have checked, of what
# it computed, and of what it hands from one of its functions to another.
_MADE_BY_THE_PACKAGE = {
    "AnchorFit",
    "BatchNormOptions",
    "BenchmarkReport",
    "Block",
    "CheckReport",
    "Comparison",
    "DatasetDetections",
    "Description",
    "Detections",
    "Division",
    "EncodedImage",
    "Evaluation",
    "EvaluationReport",
    "ExampleLoader",
    "ExportReport",
    "FileNumbers",
    "FilesReport",
    "FineTuned",
    "Forecast",
    "Found",
    "HparamsReading",
    "Identity",
    "ImageResult",
    "Launch",
    "LearningRates",
    "LoadReport",
    "LostBoxes",
    "MeasuredFile",
    "Measurement",
    "NetworkArray",
    "NetworkGraph",
    "NumberRange",
    "PipelineModel",
    "PipelineReading",
    "Problem",
    "PublishedWeights",
    "RankedImage",
    "Record",
    "RungResult",
    "SearchResult",
    "SelfTestStage",
    "Shard",
    "Times",
    "TrainingData",
    "TrainingPosition",
    "WeightSource",
}
# Fields with a check of their own.
_OTHER_CHECKS = {
    ("RunConfiguration", "profile"),  # one step, or two as text
    ("RunConfiguration", "quantize_aware"),  # the arguments of `quantize_aware`
}


def _dataclasses():
    """Every public dataclass of the package, once, by its name."""
    found = {}
    for info in pkgutil.walk_packages(ek.__path__, "effdet_keras."):
        if info.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(info.name)
        except ModuleNotFoundError as error:  # of a backend that is not installed
            assert error.name in ("jax", "torch"), error
            continue
        for name, value in vars(module).items():
            is_ours = getattr(value, "__module__", "") == info.name
            is_public_class = inspect.isclass(value) and not name.startswith("_")
            if is_ours and is_public_class and dataclasses.is_dataclass(value):
                found[f"{info.name}.{name}"] = value
    return found


_DATACLASSES = _dataclasses()


def test_every_number_of_a_dataclass_has_a_range():
    lacking = [
        f"{name}.{field.name}: {field.type}"
        for name, cls in _DATACLASSES.items()
        if cls.__name__ not in _MADE_BY_THE_PACKAGE
        and name != "effdet_keras.export.check.Limits"  # constants of the package
        for field in dataclasses.fields(cls)
        if _NUMERIC.search(str(field.type)) and range_of(field) is None
        if (cls.__name__, field.name) not in _OTHER_CHECKS
    ]
    assert lacking == []


_ARGUMENTS = {  # without which a class cannot be made
    "ScoreSettings": {"thresholds": (0.5,)},
    "WarmupCosine": {"learning_rate": 0.1, "total_steps": 9},
    "WarmupPolynomial": {"learning_rate": 0.1, "total_steps": 9},
    "Warmup": {"schedule": 0.1},
    "FlatWarmup": {"schedule": 0.1},
    "AutoAugment": {},
    "RandAugment": {},
}


def _impossible(allowed):
    """Values that a range does not have, in the form of the ones that it has."""
    low, high = map(float, allowed.interval[1:-1].split(","))
    values = [math.nan, math.inf, -math.inf, True, "1", [], object()]
    if math.isfinite(low):
        values += [low - 1, low] if allowed.interval[0] == "(" else [low - 1]
    if math.isfinite(high):
        values += [high + 1, high] if allowed.interval[-1] == ")" else [high + 1]
    if allowed.whole:
        values += [1.5]
    if "sequence" in allowed.form:
        count = 2 if allowed.count is None else allowed.count
        values += [(value,) * count for value in values if value != []]
        values += [(1,) * (count + 1)] if allowed.count else []
    if "dict" in allowed.form:
        values += [{"kernel$": value} for value in values[:4]]
    return [value for value in values if value not in allowed.others]


_FIELDS = [
    (cls, field)
    for cls in _DATACLASSES.values()
    for field in dataclasses.fields(cls)
    if range_of(field) is not None
]


@pytest.mark.parametrize(
    ("cls", "field"), _FIELDS, ids=[f"{c.__name__}.{f.name}" for c, f in _FIELDS]
)
def test_a_field_refuses_what_it_cannot_be_and_names_it(cls, field):
    arguments = _ARGUMENTS.get(cls.__name__, {})
    cls(**arguments)
    for value in _impossible(range_of(field)):
        with pytest.raises((ValueError, TypeError), match=f"`{field.name}` must be"):
            cls(**{**arguments, field.name: value})
            pytest.fail(f"{cls.__name__}({field.name}={value!r}) is accepted")


def test_bounds_that_depend_on_each_other_are_refused_where_they_are_reversed():
    with pytest.raises(ValueError, match="`ignore_threshold` must be .*0.4"):
        ek.matching.IoUMatching(iou_threshold=0.4, ignore_threshold=0.5)
    with pytest.raises(ValueError, match="`warmup_steps` must be .*from 0 to 9"):
        WarmupCosine(0.1, total_steps=9, warmup_steps=10)
    with pytest.raises(ValueError, match="`min_level` must be below max_level"):
        ek.EfficientDetConfig(min_level=5, max_level=5)


@pytest.mark.parametrize("kind", [WarmupCosine, WarmupPolynomial])
def test_a_schedule_that_is_kept_in_a_file_comes_back(kind):
    schedule = kind(0.1, total_steps=9, warmup_steps=3, warmup_init=0.01)
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(schedule)
    )
    assert again.get_config() == schedule.get_config()
    assert Warmup(schedule, warmup_steps=2).warmup_steps == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"optimizer": {"name": "sgd", "momentum": 1.5}}, "`optimizer.momentum` must"),
        ({"optimizer": {"name": "adam", "beta_1": -1}}, "`optimizer.beta_1` must be"),
        ({"optimizer": {"name": "adam", "amsgrad": "no"}}, "`optimizer.amsgrad` must"),
        ({"schedule": {"name": "cosine", "warmup_steps": -1}}, "schedule.warmup_steps"),
        ({"schedule": {"name": "cosine", "total_steps": 0}}, "`schedule.total_steps`"),
        ({"schedule": {"name": "stepwise", "drop_epochs": (9, 3)}}, "drop_epochs"),
        ({"schedule": {"name": "polynomial", "power": math.nan}}, "`schedule.power`"),
        (
            {"schedule": {"name": "manual_step", "boundaries": (5,), "rates": (1, -1)}},
            "`schedule.rates` must be numbers of at least 0",
        ),
    ],
    ids=str,
)
def test_settings_in_a_dict_are_in_their_ranges_too(arguments, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**arguments)


# --- Every number that a public function takes.

IMAGE = np.zeros((64, 64, 3), "uint8")


@pytest.fixture(scope="module")
def model():
    model = tiny_model()
    model.compile("sgd", learning_rate=1e-3)
    return model


def _dataset():
    boxes, labels = [[[4, 4, 30, 30]]] * 4, [[0]] * 4
    return from_arrays([IMAGE] * 4, boxes, labels, ["cat", "dog", "bird"])


_COUNT = (0, -1, 1.5, math.nan, True, "2")
_LENGTH = (-1, 1.5, math.nan, True, "2")
_SHARE = (-0.1, 1.5, math.nan, True, "0.5")
_POSITIVE = (0, -1, math.nan, math.inf, True)
# Function: how it is called, and values that cannot be, by argument.
CALLS = {
    "EfficientDet.fit": (
        lambda m, **k: m.fit(_dataset(), verbose=0, **k),
        {"batch_size": _COUNT, "epochs": _LENGTH, "steps_per_epoch": _COUNT},
    ),
    "EfficientDet.fit (more)": (
        lambda m, **k: m.fit(_dataset(), verbose=0, **k),
        {
            "initial_epoch": _LENGTH,
            "validation_steps": _COUNT,
            "validation_split": _SHARE,
        },
    ),
    "EfficientDet.evaluate": (
        lambda m, **k: m.evaluate(_dataset(), **k),
        {"batch_size": _COUNT, "steps": _COUNT},
    ),
    "EfficientDet.predict": (
        lambda m, **k: m.predict(_dataset(), **k),
        {"batch_size": _COUNT, "steps": _COUNT},
    ),
    "EfficientDet.compile": (
        lambda m, **k: m.compile(**k),
        {"steps_per_execution": _COUNT},
    ),
    "EfficientDet.batches": (
        lambda m, **k: m.batches(_dataset(), **k),
        {"batch_size": _COUNT, "epochs": _LENGTH, "steps_per_epoch": _COUNT},
    ),
    "EfficientDet.detect": (
        lambda m, **k: m.detect(IMAGE, **k),
        {"batch_size": _COUNT, "score_threshold": _SHARE},
    ),
    "EfficientDet.from_preset": (
        lambda m, **k: ek.EfficientDet.from_preset("efficientdet-lite0", **k),
        {"num_classes": _COUNT},
    ),
    "EfficientDet.quantize_aware": (
        lambda m, **k: m.quantize_aware(**k),
        {"delay": _LENGTH, "batch_norm_steps": _LENGTH, "range_steps": _COUNT},
    ),
    "Predictor": (lambda m, **k: ek.Predictor(m, **k), {"num_threads": _COUNT}),
    "Predictor.load": (
        lambda m, **k: ek.Predictor.load("m.onnx", **k),
        {"num_threads": _COUNT},
    ),
    "Predictor.detect": (
        lambda m, **k: ek.Predictor(m).detect(IMAGE, **{"tiles": 64, **k}),
        {
            "batch_size": _COUNT,
            "score_threshold": _SHARE,
            "tile_overlap": (-0.1, 1, math.nan, True),
            "tiles": (0, -5, 1.5, "9"),
            "augment": (0, (-1.0,), (math.nan,), (True,)),
        },
    ),
    "Predictor.evaluate": (
        lambda m, **k: ek.Predictor(m).evaluate(_dataset(), **k),
        {"batch_size": _COUNT},
    ),
    "Recipe.resolve_schedule": (
        lambda m, **k: Recipe().resolve_schedule(
            **{"batch_size": 1, "steps_per_epoch": 1, "epochs": 1, **k}
        ),
        {"batch_size": _POSITIVE, "steps_per_epoch": _POSITIVE, "epochs": _POSITIVE},
    ),
    "distill": (
        lambda m, **k: ek.distill(m, tiny_model(), _dataset(), **k),
        {"weight": _POSITIVE, "batch_size": _COUNT, "epochs": _LENGTH},
    ),
    "Detections.filter": (
        lambda m, **k: ek.Detections([[0, 0, 1, 1]], [0.5], [0]).filter(**k),
        {"score": _SHARE},
    ),
    "Detections.draw": (
        lambda m, **k: ek.Detections([[0, 0, 1, 1]], [0.5], [0], image=IMAGE).draw(**k),
        {"min_side": _COUNT},
    ),
    "DetectionDataset.batches": (
        lambda m, **k: _dataset().batches(
            **{"batch_size": 2, "image_size": 64, "training": True, **k}
        ),
        {
            "batch_size": _COUNT,
            "image_size": (*_COUNT, (64, 0), (64, 64, 64)),
            "seed": (-1, 1.5, "0"),
            "flip_probability": _SHARE,
            "balance": (0, -0.1, 1.5, math.nan, True, "rare"),
            "scale_jitter": ((0, 1), (2, 1), (1, math.inf), (1,), "1"),
            "target_size": _COUNT,
            "pad_value": ((0, 0), (0, 0, 256), (0, 0, math.nan)),
            "max_boxes": (-1, 1.5, math.nan, True),
        },
    ),
    "DetectionDataset.split": (
        lambda m, **k: _dataset().split(**{"fraction": 0.5, **k}),
        {"fraction": (0, 1, *_SHARE), "seed": _LENGTH},
    ),
    "load_train_valid": (
        lambda m, **k: ek.data.load_train_valid("in", **k),
        {"fraction": (0, 1, *_SHARE), "seed": _LENGTH},
    ),
    "convert": (
        lambda m, **k: ek.data.convert("in", "out", "tfrecord", **k),
        {"num_shards": _COUNT},
    ),
    "write_tfrecord": (
        lambda m, **k: ek.data.write_tfrecord(_dataset(), "out", **k),
        {"num_shards": _COUNT},
    ),
    "write_shapes": (
        lambda m, **k: ek.data.write_shapes("out", **k),
        {
            "num_train": _COUNT,
            "num_valid": _COUNT,
            "image_size": (31, *_COUNT),
            "seed": _LENGTH,
        },
    ),
    "check": (
        lambda m, **k: ek.data.check(_dataset(), **k),
        {"image_size": _COUNT},
    ),
    "COCOMetric": (
        lambda m, **k: ek.metrics.COCOMetric(_dataset().to_coco(), **k),
        {"max_detections": (9, *_COUNT)},
    ),
    "generate_anchors": (
        lambda m, **k: _anchors().generate_anchors(**{"image_size": (64, 64), **k}),
        {
            "image_size": ((0, 64), (64,), (64.5, 64), (math.nan, 64)),
            "min_level": _LENGTH,
            "max_level": (2, *_COUNT),
            "num_scales": _COUNT,
            "aspect_ratios": ((), (0,), (-1,), (math.nan,), (math.inf,)),
            "anchor_scale": _POSITIVE,
        },
    ),
    "focal_loss": (
        lambda m, **k: _losses().focal_loss([[1]], np.zeros((1, 1, 2)), **k),
        {
            "alpha": (25, *_SHARE),
            "gamma": (-1, math.nan, math.inf, True),
            "label_smoothing": _SHARE,
            "class_weights": ((1, -1), (1, math.nan), (1, True), (1,)),
        },
    ),
    "augmented": (
        lambda m, **k: ek.visualize.augmented(_dataset(), **k),
        {"images": (0, -1), "repeats": _COUNT, "seed": (-1,), "image_size": _COUNT},
    ),
    "draw_boxes": (
        lambda m, **k: ek.visualize.draw_boxes(IMAGE, [[0, 0, 9, 9]], **k),
        {"min_side": _COUNT},
    ),
    "COCOEvaluation": (
        lambda m, **k: ek.callbacks.COCOEvaluation(_dataset(), **k),
        {"every": _COUNT, "batch_size": _COUNT},
    ),
    "CheckpointArchive": (
        lambda m, **k: ek.callbacks.CheckpointArchive("folder", **k),
        {
            "save_every_steps": _COUNT,
            "save_every_minutes": _POSITIVE,
            "keep": _COUNT,
            "keep_every_hours": _POSITIVE,
        },
    ),
    "ImageSummary": (
        lambda m, **k: ek.callbacks.ImageSummary(_dataset(), "folder", **k),
        {
            "num_images": _COUNT,
            "every": _COUNT,
            "score_threshold": _SHARE,
            "max_side": _COUNT,
        },
    ),
    "RandomApply": (
        lambda m, **k: ek.augment.RandomApply(ek.augment.Rotate(), **k),
        {"probability": _SHARE},
    ),
}
# Numbers that cannot be wrong by themselves, or are checked by what they are handed to.
_WITHOUT_RANGE = {
    "verbose",  # any number that Keras takes
    "category_ids",  # names, whatever their numbers
    "image_id",
    "image_ids",
    "indices",  # an IndexError
    "label_map",
    "classes",
    "columns",
    "metrics",
    "share",  # of `multiprocess.start`
    "source",  # the number of a camera
    "epoch",  # of Keras' callbacks
    "step",  # of the package's own calls
}
# Those that hand all their numbers to a call in the table, or need what is not here.
_HANDED_ON = {
    "EfficientDet.position_to_resume",  # `fit`
    "EfficientDet.resume_training",  # what a file says
    "EfficientDet.from_hub",  # `from_preset`
    "EfficientDet.from_pipeline_config",
    "EfficientDet.export",  # its options: tests/export/test_registry.py
    "Predictor.detect_video",  # `Predictor.detect`
    "ImageResult.above",  # any score: none is above infinity
}


_ON_TENSORFLOW_ALONE = ("distill", "EfficientDet.quantize_aware")


def _anchors():
    return importlib.import_module("effdet_keras.network.anchors")


def _losses():
    return importlib.import_module("effdet_keras.train.losses")


@pytest.mark.parametrize(
    ("call", "argument"),
    [(call, argument) for call, (_, names) in CALLS.items() for argument in names],
)
def test_a_function_refuses_what_cannot_be_and_names_it(
    call, argument, model, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    if call in _ON_TENSORFLOW_ALONE and keras.backend.backend() != "tensorflow":
        pytest.skip("another backend is refused first")
    function, arguments = CALLS[call]
    for value in arguments[argument]:
        with pytest.raises((ValueError, TypeError), match=argument):
            function(model, **{argument: value})
            pytest.fail(f"{call}({argument}={value!r}) is accepted")
    assert not list(tmp_path.iterdir())


def _public_functions():
    """Public functions, methods and constructors of classes, by name."""
    modules = [ek, *(getattr(ek, n) for n in ("data", "augment", "callbacks"))]
    modules += [ek.metrics, ek.visualize, ek.matching, ek.schedules, _anchors()]
    for module in [*modules, _losses()]:
        for name in module.__all__:
            value = getattr(module, name)
            if not inspect.isclass(value):
                yield name, value
                continue
            if not dataclasses.is_dataclass(value):
                yield name, value.__init__
            for key in dir(value):
                if not key.startswith("_") and callable(getattr(value, key)):
                    yield f"{name}.{key}", getattr(value, key)


def test_every_number_of_a_public_function_is_in_the_table_above():
    known = {call.partition(" ")[0]: set() for call in CALLS}
    for call, (_, arguments) in CALLS.items():
        known[call.partition(" ")[0]] |= set(arguments)
    lacking = set()
    for name, function in _public_functions():
        if not (getattr(function, "__module__", "") or "").startswith("effdet_keras"):
            continue  # Keras' own
        try:
            hints = typing.get_type_hints(function)
        except (NameError, TypeError):
            hints = getattr(function, "__annotations__", {})
        for argument, kind in hints.items():
            is_number = _NUMERIC.search(re.sub(r"(dict|Mapping)\[.*?\]", "", str(kind)))
            is_exempt = argument in {"return", *_WITHOUT_RANGE} or name in _HANDED_ON
            if is_number and not is_exempt and argument not in known.get(name, ()):
                lacking.add(f"{name}({argument}: {kind})")
    assert lacking == set()
