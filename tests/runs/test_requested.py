"""The command of a run may be given again, whatever was measured for it."""

import pytest

from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.requested import _MAPPINGS as MERGED
from effdet_keras.runs.requested import build_configuration, resumed
from effdet_keras.runs.run_folder import RunFolder

AUTO = {"data": "cells", "batch_size": "auto", "time_budget": "20m"}
CHOSEN = {"batch_size": 16, "epochs": 7, "time_budget": None, "evaluate_every": 3}
HPARAMS = "optimizer=adam,learning_rate=0.064,gamma=2.0"


@pytest.fixture
def begun(tmp_path):
    """Begins a run that was asked for by fields and files, and chose some fields."""

    def begin(fields, files=(None, None), chosen=CHOSEN):
        configuration, hparams = files
        asked = build_configuration(configuration, hparams, fields)
        folder = RunFolder(tmp_path / "run")
        folder.begin(asked.replace(**chosen))
        return folder

    return begin


def again(folder, fields, configuration=None, hparams=None):
    return resumed(folder, configuration, hparams, fields, ignore_unknown=False)


@pytest.mark.parametrize("fields", [AUTO, {}, {"batch_size": 16}, {"data": "cells"}])
def test_what_was_chosen_stays(begun, fields):
    folder = begun(AUTO)
    assert again(folder, fields) == folder.read_configuration()


def test_the_split_of_a_run_stays(begun, tmp_path):
    """Also where a file that does not name it is given again."""
    RunConfiguration(**AUTO).write(tmp_path / "base.yaml")
    folder = begun(AUTO, chosen={**CHOSEN, "split_by": "image"})
    for file in (None, tmp_path / "base.yaml"):
        assert again(folder, {}, file).split_by == "image"
    with pytest.raises(ValueError, match="split_by='name', but it began with 'image'"):
        again(folder, {"split_by": "name"})


def test_the_files_of_the_command_may_be_given_again(begun, tmp_path):
    RunConfiguration(**AUTO, seed=4).write(tmp_path / "base.yaml")
    files = (tmp_path / "base.yaml", HPARAMS)
    folder = begun({}, files, {**CHOSEN, "learning_rate": 0.016})  # scaled
    assert again(folder, {}, *files) == folder.read_configuration()


def test_what_a_time_budget_freezes_stays(begun, tmp_path):
    RunConfiguration(time_budget="20m").write(tmp_path / "base.yaml")
    folder = begun({}, (tmp_path / "base.yaml", None), {**CHOSEN, "freeze": "backbone"})
    fields = {"batch_size": "auto"}
    assert again(folder, fields, tmp_path / "base.yaml") == folder.read_configuration()
    with pytest.raises(ValueError, match="freeze=None, but it began with 'backbone'"):
        again(folder, {**fields, "freeze": None}, tmp_path / "base.yaml")


def test_what_matters_must_not_change(begun):
    folder = begun({"data": "cells"}, (None, HPARAMS), chosen={})
    with pytest.raises(ValueError, match=r"seed=3, but it began with 0\. Only these"):
        again(folder, {"seed": 3})
    with pytest.raises(ValueError, match=r"learning_rate=.*, but it began with 0"):
        again(folder, {"data": "cells"}, None, HPARAMS.replace("4", "5"))


def test_a_new_length_counts(begun):
    folder = begun(AUTO, chosen={**CHOSEN, "epochs": None, "steps": 5})
    chosen = again(folder, {"epochs": 40, "keep": 3})
    assert (chosen.epochs, chosen.steps, chosen.keep) == (40, None, 3)


@pytest.mark.parametrize(
    ("field", "in_file", "given", "expected"),
    [
        ("loss", {"gamma": 2.0}, {"alpha": 0.5}, {"gamma": 2.0, "alpha": 0.5}),
        (
            "matching",
            {"force": False},
            {"iou_threshold": 0.6},
            {"force": False, "iou_threshold": 0.6},
        ),
        (
            "adversarial",
            {"epsilon": 2.0},
            {"step_size": 0.5},
            {"epsilon": 2.0, "step_size": 0.5},
        ),
        (
            "quantize_aware",
            {"delay": 5},
            {"range_steps": 9},
            {"delay": 5, "range_steps": 9},
        ),
        ("quantize_aware", True, {"delay": 5}, {"delay": 5}),
        ("quantize_aware", {"delay": 5}, True, {"delay": 5}),
        ("quantize_aware", {"delay": 5}, False, False),
        (
            "schedule",
            "cosine",
            {"warmup_steps": 5},
            {"name": "cosine", "warmup_steps": 5},
        ),
        (
            "optimizer",
            {"name": "momentum", "momentum": 0.8},
            {"name": "adam"},
            {"name": "adam"},
        ),
        (
            "learning_rate_multipliers",
            {"bias$": 2.0},
            {"class_net": 3.0},
            {"bias$": 2.0, "class_net": 3.0},
        ),
    ],
)
def test_a_name_of_a_mapping_leaves_the_others_of_a_file(
    tmp_path, field, in_file, given, expected
):
    RunConfiguration(**{field: in_file}).write(tmp_path / "base.yaml")
    run = build_configuration(tmp_path / "base.yaml", None, {field: given})
    assert getattr(run, field) == expected


def test_one_name_of_what_is_trained_on_takes_the_place_of_another(begun, tmp_path):
    patterns = {"train_file_pattern": "a/train-*", "val_file_pattern": "a/val-*"}
    RunConfiguration(data="cells").write(tmp_path / "base.yaml")
    run = build_configuration(tmp_path / "base.yaml", None, patterns)
    assert (run.data, run.train_file_pattern) == (None, "a/train-*")
    run = build_configuration(RunConfiguration(**patterns), None, {"data": "cells"})
    assert (run.data, run.train_file_pattern) == ("cells", None)

    folder = begun(patterns, chosen={})
    assert again(folder, {}) == folder.read_configuration()
    (tmp_path / "empty.yaml").write_text("")
    assert again(folder, {}, tmp_path / "empty.yaml") == folder.read_configuration()
    moved = again(folder, {"train_file_pattern": "b/train-*"})
    assert (moved.data, moved.val_file_pattern) == (None, "a/val-*")


def test_every_field_that_is_a_mapping_of_options_is_merged():
    kinds = {n: str(f.type) for n, f in RunConfiguration.__dataclass_fields__.items()}
    mappings = {name for name, kind in kinds.items() if "dict[str" in kind}
    assert mappings - {"augment"} == set(MERGED)


def test_only_the_fields_that_a_file_sets_must_be_as_before(begun, tmp_path):
    folder = begun({"data": "cells", "image_size": 64, "seed": 9}, chosen={"epochs": 7})
    file = tmp_path / "some.yaml"
    file.write_text("seed: 9\nepochs: 8\n")
    assert again(folder, {}, file) == folder.read_configuration().replace(epochs=8)
    file.write_text("seed: 8\n")
    with pytest.raises(ValueError, match="seed=8, but it began with 9"):
        again(folder, {}, file)
