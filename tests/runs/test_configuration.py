"""`RunConfiguration`: every field is checked, and comes back from YAML as it was."""

import dataclasses
import pathlib

import pytest

from effdet_keras._internal.yaml_text import load_yaml, read_yaml
from effdet_keras.runs.configuration import (
    RunConfiguration,
    in_words,
    parse_settings,
    range_of_steps,
)

# A value for every field, none of them the default.
OTHERS = {
    "data": "cells",
    "format": "coco",
    "on_error": "skip",
    "unlabelled": "skip",
    "reader_options": {"one_based": False},
    "train_split": "train2017",
    "validation_split": "val2017",
    "test_split": None,
    "validation_fraction": 0.1,
    "split_by": "folder",
    "class_names": ("cat", "dog"),
    "train_on_crowds": True,
    "model": "efficientdet-d1",
    "weights": "coco",
    "checkpoint_type": "detection",
    "name_map": {"stem/(.*)": "efficientnet-b1/stem/\\1"},
    "image_size": (192, 256),
    "anchors": None,
    "model_config": {"max_level": 5, "aspect_ratios": (1.0, 2.0)},
    "precision": "mixed_bfloat16",
    "distribute": "mirrored",
    "recipe": "reference",
    "optimizer": {"name": "rmsprop", "momentum": 0.9},
    "schedule": {"name": "cosine", "warmup_steps": 5},
    "learning_rate": 1e-3,
    "weight_decay": None,
    "clip_norm": 5.0,
    "ema_decay": None,
    "learning_rate_multipliers": {"^efficientnet": 0.5},
    "gradient_multipliers": {"bias$": 2.0},
    "accumulate_steps": 4,
    "grad_checkpoint": True,
    "loss_scale": 1024.0,
    "batch_norm_warmup": False,
    "freeze": "backbone+fpn",
    "freeze_batch_norm": False,
    "loss": {"gamma": 2.0},
    "adversarial": {"epsilon": 2.0},
    "matching": {"force": False},
    "teacher_weight": 2.0,
    "epochs": 3,
    "batch_size": 4,
    "steps_per_execution": 2,
    "jit_compile": True,
    "run_eagerly": True,
    "one_batch": True,
    "seed": 5,
    "deterministic": True,
    "balance": 0.3,
    "augment": ("mosaic", "blur"),
    "flip_probability": 0.0,
    "scale_jitter": (0.5, 1.5),
    "target_size": (96, 128),
    "pad_rgb": (0.0, 1.0, 2.0),
    "postprocess": {"method": "hard", "iou_threshold": 0.6},
    "monitor": "val_loss",
    "patience": 4,
    "evaluate_every": 2,
    "validation_losses": True,
    "save_every_steps": 50,
    "save_every_minutes": 2.5,
    "keep": 3,
    "keep_every_hours": 1.5,
    "tensorboard": True,
    "gradient_summary_every": 100,
    "input_summary_every": 50,
    "profile": "10,20",
    "export": "triton",
    "verbose": 0,
}


def test_all_fields_come_back_from_yaml(tmp_path):
    run = RunConfiguration(**OTHERS)
    left = {f.name for f in dataclasses.fields(run)} - set(OTHERS)
    # `epochs`, `precision` and `distribute` have their places.
    patterns = {"train_file_pattern", "val_file_pattern"}
    assert left == {"steps", "time_budget", "quantize_aware", "teacher", *patterns}
    for field in dataclasses.fields(run):
        if field.name not in left:
            assert getattr(run, field.name) != getattr(
                RunConfiguration(), field.name
            ), field.name
    run.write(tmp_path / "run.yaml")
    assert RunConfiguration.read(tmp_path / "run.yaml") == run
    for changed in (
        {"epochs": None, "steps": 9},
        {"epochs": None, "time_budget": "1.5h", "distribute": None},
        {"precision": "float32", "quantize_aware": {"delay": 5}},
        {"distribute": None, "teacher": "runs/d2", "quantize_aware": False},
        {
            "data": None,
            "train_file_pattern": "data/train-*",
            "val_file_pattern": "data/val-*",
            "train_split": "auto",
            "validation_split": "auto",
        },
    ):
        other = run.replace(**changed)
        other.write(tmp_path / "run.yaml")
        assert RunConfiguration.read(tmp_path / "run.yaml") == other


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        *(
            ({"epochs": wrong}, r"`epochs` must be int \| None")
            for wrong in (1.0, True)
        ),
        ({"epochs": 0}, "`epochs` must be a whole number of at least 1"),
        ({"flip_probability": float("nan")}, "`flip_probability` must be float"),
        ({"seed": 2**32}, "`seed` must be a whole number from 0 to 4294967295"),
        ({"freeze_batch_norm": 0}, "must be bool. Received: freeze_b"),
        ({"scale_jitter": (1, 2, 3)}, r"tuple\[float, float\] \| 'auto'"),
        ({"epochs": 2, "steps": 9}, "one of `epochs`, `steps` and `time_budget`"),
        ({"time_budget": "20"}, "a duration such as '90s', '20m' or '1.5h'"),
        ({"profile": "20,10"}, "a step such as 10, or steps such as '10,20'"),
        ({"batch_size": "all"}, r"`batch_size` must be int \| 'auto'"),
        ({"precision": "float16"}, "'mixed_bfloat16'"),
        ({"recipe": "mine"}, "`recipe` must be one of 'auto', 'reference'"),
        ({"patience": 3, "evaluate_every": 0}, "`patience` counts evaluations"),
        ({"optimizer": "adamm"}, "Did you mean 'adam"),
        ({"schedule": "cosinus"}, "Did you mean 'cosine'"),
        ({"augment": ("mosaik",)}, "mosaic"),
        ({"model": "efficientdet-d9"}, "Did you mean 'efficientdet-d"),
        ({"model_config": {"max_levels": 5}}, "Did you mean 'max_level'"),
        ({"model_config": {"num_classes": 3}}, "not in `model_config`"),
        ({"loss": {"gama": 2.0}}, "Did you mean 'gamma'"),
        ({"postprocess": {"method": "soft"}}, "'hard'"),
        ({"monitor": "val_loss"}, "set validation_losses=True"),
        ({"checkpoint_type": "full"}, "`checkpoint_type` chooses which variables"),
        (
            {"checkpoint_type": "detection", "weights": None},
            "weights='coco'.*Received: checkpoint_type='detection', weights=None",
        ),
        *(
            ({"model": "https://tfhub.dev/x", **field}, "starts from the module's w")
            for field in (
                {"weights": "coco"},
                {"weights": "none"},
                {"weights": "ckpt", "name_map": {"a": "b"}, "checkpoint_type": "full"},
                {"freeze": "all-but-new-classes"},
            )
        ),
        ({"seeds": 3}, r"no field 'seeds'\. Did you mean 'seed'\? It has"),
        ({"val_file_pattern": "val-*"}, "set `train_file_pattern` too"),
        ({"data": "x", "train_file_pattern": "train-*"}, "give one of the two"),
        ({"train_file_pattern": "t-*", "train_split": "x"}, "no splits to choose from"),
        ({"quantize_aware": {"dely": 3}}, "Did you mean 'delay'"),
        ({"quantize_aware": True, "precision": "mixed_bfloat16"}, "='float32'"),
    ],
    ids=str,
)
def test_what_cannot_be_right_is_told_with_what_may_be(fields, message):
    with pytest.raises((ValueError, TypeError), match=message):
        RunConfiguration().replace(**fields)


@pytest.mark.parametrize(
    ("monitor", "mode"),
    [("loss", "min"), ("class_loss", "min"), ("AP50", "max"), ("AP/floss", "max")]
    + [("AP/hair_loss", "max")],
)
def test_of_a_loss_less_is_better_and_of_all_else_more(monitor, mode):
    run = RunConfiguration(monitor=monitor, evaluate_every=0)
    assert run.monitor_mode == mode
    assert run.has_best is (mode == "min")


def test_an_error_of_a_file_names_the_file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("epoch: 3\n")
    with pytest.raises(ValueError, match=r"run\.yaml': A run has no field 'epoch'"):
        RunConfiguration.read(path)
    with pytest.raises(FileNotFoundError):
        RunConfiguration.read(tmp_path / "nowhere.yaml")


def test_lists_paths_and_mappings_are_taken_over_not_shared():
    config = {"aspect_ratios": [1.0, 2.0]}
    run = RunConfiguration(
        data=pathlib.Path("cells"), image_size=[192, 256], model_config=config
    )
    config["aspect_ratios"].append(0.5)
    assert (run.data, run.image_size) == ("cells", (192, 256))
    assert run.model_config == {"aspect_ratios": (1.0, 2.0)}


def test_settings_are_read_as_yaml():
    texts = ["learning_rate=1e-3", "image_size=[192, 256]", "freeze=null"]
    texts += ["model_config.max_level=5", "model_config.num_scales=2", "data=a=b"]
    fields = parse_settings(texts)
    assert fields == {
        "learning_rate": 0.001,
        "image_size": [192, 256],
        "freeze": None,
        "model_config": {"max_level": 5, "num_scales": 2},
        "data": "a=b",
    }
    assert load_yaml("1E+5") == 1e5 and load_yaml("12") == 12


def test_settings_of_another_form_are_refused():
    for text, message in (("epochs", "FIELD=VALUE"), ("size=[1", "ParserError")):
        with pytest.raises(ValueError, match=message):
            parse_settings([text])


@pytest.mark.parametrize(
    ("flags", "texts", "field"),
    [
        ({"epochs": 3}, ["epochs=5"], "epochs"),
        ({"data": "cats"}, ["data=dogs"], "data"),
        ({"test_split": None}, ["test_split=test"], "test_split"),
        ({"quantize_aware": True}, ["quantize_aware=false"], "quantize_aware"),
        ({}, ["epochs=3", "epochs=5"], "epochs"),
        ({}, ["loss.gamma=2", "loss.gamma=3"], "loss"),
        ({}, ["loss.gamma=2", "loss={gamma: 3}"], "loss"),
        ({}, ["loss=null", "loss.gamma=3"], "loss"),
        ({}, ["loss.gamma=3", "loss=5"], "loss"),
    ],
)
def test_a_field_that_gets_two_values_is_refused(flags, texts, field):
    with pytest.raises(ValueError, match=f"`{field}` is given by .*leave one"):
        parse_settings(texts, flags)


@pytest.mark.parametrize(
    ("flags", "texts", "fields"),
    [
        ({"epochs": 3}, ["epochs=3", "seed=1"], {"epochs": 3, "seed": 1}),
        ({"image_size": (64, 96)}, ["image_size=[64, 96]"], {"image_size": (64, 96)}),
        ({"weights": None}, ["weights=none"], {"weights": None}),
        (
            {"quantize_aware": True},
            ["quantize_aware.delay=5", "quantize_aware.range_steps=9"],
            {"quantize_aware": {"delay": 5, "range_steps": 9}},
        ),
        ({}, ["loss={gamma: 2}", "loss.alpha=3"], {"loss": {"gamma": 2, "alpha": 3}}),
    ],
)
def test_a_field_that_is_given_twice_alike_is_taken(flags, texts, fields):
    assert parse_settings(texts, flags) == fields


@pytest.mark.parametrize("field", ["weights", "freeze", "test_split"])
def test_the_word_none_is_none(field):
    assert getattr(RunConfiguration(**{field: "none"}), field) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", "must hold lines `name: value`"),
        ("a: [1\n", "is not YAML"),
        ("epochs: 1\nepochs: 2\n", "'epochs' is given twice"),
        ("model: !!python/object:os.system x\n", "is not YAML"),
    ],
    ids=repr,
)
def test_files_that_are_no_configuration_are_refused(tmp_path, text, message):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_yaml(path)


def test_class_names_of_files_and_settings_are_text(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("class_names: [007, 16:9, no, 1.10]\n")
    assert RunConfiguration.read(path).class_names == ("007", "16:9", "no", "1.10")
    path.write_text("class_names: {1: 007, 2: on}\n")
    assert RunConfiguration.read(path).class_names == {1: "007", 2: "on"}


def test_steps_and_durations():
    pairs = [range_of_steps(value) for value in ("10,20", 7)]
    assert pairs == [(10, 20), (7, 7)]
    assert not any(map(range_of_steps, ("20,10", 0, "10-20")))
    words = [in_words(seconds) for seconds in (0.257, 42, 1234, 5400)]
    assert words == ["0.26 s", "42 s", "20.6 min", "1.5 h"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[cat, no, 007, 16:9]", ["cat", "no", "007", "16:9"]),
        ("{1: no, 2: 007}", {1: "no", 2: "007"}),
        ("1: no\n 2: 007", {1: "no", 2: "007"}),
        ("labels.txt", "labels.txt"),
        ("null", None),
    ],
)
def test_names_of_classes_stay_as_written_on_the_command_line(text, value):
    assert parse_settings([f"class_names={text}"]) == {"class_names": value}
