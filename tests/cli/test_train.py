"""`effdet-keras train`: from a dataset to a judged detector, without Python."""

import argparse
import dataclasses
import inspect
import json
import shlex
import shutil
import types

import pytest
from support.kinds import slow_but
from support.tiny_run import MODEL_CONFIG

from effdet_keras import cli
from effdet_keras.cli import train as train_command
from effdet_keras.data import write_shapes, write_tfrecord
from effdet_keras.extras import rate_test
from effdet_keras.extras.rate_test import LearningRates
from effdet_keras.extras.remote import files as remote_files
from effdet_keras.runs.configuration import RunConfiguration, parse_settings
from effdet_keras.runs.run_folder import RunFolder

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def data(shapes):
    return str(shapes)


def train(*arguments, out):
    flags = ["--weights", "none", "--image-size", "64", "--batch-size", "2"]
    settings = {f"model_config.{n}": v for n, v in MODEL_CONFIG.items()}
    settings |= {"run_eagerly": "true", "tensorboard": "false"}
    settings["postprocess.max_detections"] = 5
    flags += [f"--set={name}={value}" for name, value in settings.items()]
    return cli.main(["train", *map(str, arguments), *flags, "--out", str(out)])


def test_every_flag_is_a_field():
    parser = argparse.ArgumentParser()
    train_command.add_arguments(parser)
    flags = {action.dest for action in parser._actions} - {"help"}
    others = set(inspect.signature(train_command.run).parameters) - {"data"}
    fields = {field.name for field in dataclasses.fields(RunConfiguration)}
    assert len(flags - others) > 20 and flags - others <= fields


@pytest.mark.smoke
def test_it_trains_and_says_where_what_is_and_goes_on(data, tmp_path, capsys):
    out = tmp_path / "run"
    flags = ["--one-batch", "--augment", "blur,cut_out", "--freeze", "none"]
    flags += ["--balance", "0.5"]
    assert train(data, *flags, "--seed", 3, "--learning-rate", "1e-3", out=out) == 0
    said = capsys.readouterr().out
    for text in ("AP50 ", "on 'validation'", "best.keras", "curves.png", "log.txt"):
        assert text in said
    assert "One batch: 2 images to train on, and 2 of 'validation'" in said
    assert "Compiling" not in said  # one batch is trained eagerly
    assert "\r" not in said.replace("\r\n", "")
    run = RunConfiguration.read(out / "configuration.yaml")
    assert (run.seed, run.freeze, run.learning_rate) == (3, None, 0.001)
    assert run.balance == 0.5
    assert run.augment == ("blur", "cut_out") and run.model_config == MODEL_CONFIG
    assert json.loads((out / "numbers.json").read_text())["split"] == "validation"

    assert train(data, out=out) == 1
    assert "already has a run" in capsys.readouterr().err
    assert cli.main(["train", "--resume", "--out", str(out)]) == 0
    assert "Run is complete (1 of 1 epoch)." in capsys.readouterr().out


def test_images_that_are_missing_stop_a_training_or_are_left_out(
    data, tmp_path, capsys
):
    coco, out = tmp_path / "coco", tmp_path / "run"
    shutil.copytree(data, coco)
    next((coco / "train").iterdir()).unlink()
    assert train(coco, "--one-batch", out=out) == 1
    said = capsys.readouterr().err
    assert "1 missing image" in said and "(--skip-errors) to leave it out" in said
    assert not out.exists()
    assert train(coco, "--one-batch", "--skip-errors", out=out) == 0
    said = capsys.readouterr()
    assert "left out" in said.err and "1 missing image" in said.err
    assert RunConfiguration.read(out / "configuration.yaml").on_error == "skip"


def test_none_is_a_word_for_augmentations_as_for_other_flags():
    parser = argparse.ArgumentParser()
    train_command.add_arguments(parser)
    words = ["DATA", "--out", "OUT", "--augment"]
    assert parser.parse_args([*words, "none"]).augment == ()
    assert parser.parse_args([*words, "blur, mosaic"]).augment == ("blur", "mosaic")


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """A folder of TFRecord files of two splits, each in two shards."""
    folder = tmp_path_factory.mktemp("records")
    train, valid = write_shapes(
        folder / "shapes", num_train=6, num_valid=4, image_size=64
    )
    splits = {"train": train, "val": valid}
    write_tfrecord(splits, folder / "records", num_shards=2)
    return folder / "records"


@pytest.mark.parametrize("dash", slow_but("_", "-_"))
def test_files_to_train_and_to_validate_on_may_be_patterns(
    records, tmp_path, capsys, dash
):
    out = tmp_path / "run"
    train_flag, val_flag = "--train-file-pattern", "--val-file-pattern"
    if dash == "_":  # as google/automl spells them
        train_flag, val_flag = "--train_file_pattern", "--val_file_pattern"
    patterns = [train_flag, f"{records}/train-*.tfrecord"]
    patterns += [val_flag, f"{records}/val-*.tfrecord"]
    assert train(*patterns, "--one-batch", "--seed", 1, out=out) == 0
    capsys.readouterr()
    described = json.loads((out / "data.json").read_text())
    assert described["path"] == f"{records}/train-*.tfrecord"
    assert set(described["splits"]) == {"train", "validation"}
    assert cli.main(["train", "--resume", "--out", str(out)]) == 0
    assert "Run is complete" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--val-file-pattern", "val-*"], "set `train_file_pattern` too"),
        (["DATA", "--train-file-pattern", "train-*"], "give one of the two"),
        (["--train-file-pattern", "nowhere/train-*"], "nowhere/train-*"),
        ([], "nothing to train on"),
        (["--find-rate"], "nothing to train on"),
    ],
    ids=str,
)
def test_patterns_that_cannot_be_right_are_told(tmp_path, capsys, flags, message):
    assert train(*flags, out=tmp_path / "run") == 1
    said = capsys.readouterr().err
    assert message in said and "Traceback" not in said
    assert not (tmp_path / "run" / "configuration.yaml").exists()


def test_find_rate_writes_a_curve_and_leaves_the_folder_to_the_run(
    data, tmp_path, capsys, monkeypatch
):
    out = tmp_path / "run"
    seen = []

    def measured(model, batches):
        seen.append((model.name, len(batches)))
        arguments = {"optimizer": "adamw", "learning_rate": 0.002}
        return LearningRates((0.001, 0.02, 0.4), (3.0, 2.0, 9.0), 0.002, arguments)

    monkeypatch.setattr("effdet_keras.extras.rate_test.find_learning_rate", measured)
    assert train(data, "--find-rate", out=out) == 0
    said = capsys.readouterr().out
    assert "--set optimizer=adamw --set learning_rate=0.002" in said
    assert seen == [("efficientdet-lite0", 2)]
    found = json.loads((out / "learning_rates.json").read_text())
    assert (found["suggestion"], found["losses"]) == (0.002, [3.0, 2.0, 9.0])
    assert (out / "learning_rates.png").exists()
    assert sorted(p.name for p in out.iterdir() if p.name[0] != ".") == [
        "learning_rates.json",
        "learning_rates.png",
    ]
    RunFolder(out).check_empty(overwrite=False)  # a run can begin here


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--set", "epoch=3"], "Did you mean 'epochs'"),
        (["--precision", "half"], "`precision` must be 'float32'"),
        (["--hparams", "gama=2"], "Did you mean 'gamma'"),
        (["--weights", "cocoa"], "Did you mean 'coco'"),
        (["--epochs", "3", "--set", "epochs=5"], "`--epochs` and by `--set epochs=5`"),
        (["--set", "data=other"], "`DATA` and by `--set data=other`"),
        (["--find-rate", "--overwrite"], "leave --overwrite and --resume out"),
        (["--find-rate", "--resume"], "leave --overwrite and --resume out"),
    ],
    ids=str,
)
def test_what_is_wrong_is_one_line(data, tmp_path, capsys, flags, message):
    out = tmp_path / "run"
    assert cli.main(["train", data, "--out", str(out), *flags]) == 1
    said = capsys.readouterr().err
    assert message in said and said.startswith("effdet-keras: ")
    assert not (out / "configuration.yaml").exists()


def test_the_flags_that_find_rate_prints_are_ones_that_a_shell_takes(tmp_path, capsys):
    optimizer = {"name": "momentum", "momentum": 0.8, "nesterov": True}
    arguments = {"optimizer": optimizer, "learning_rate": 1e-05}
    found = LearningRates((0.001,), (3.0,), 1e-05, arguments)
    rate_test._print_result(found, RunFolder(tmp_path))
    line = next(x for x in capsys.readouterr().out.splitlines() if "--set" in x)
    words = shlex.split(line[line.index("--set") :])
    assert words[::2] == ["--set", "--set"] and len(words) == 4
    assert parse_settings(words[1::2]) == arguments


def test_image_size_is_one_number_two_or_auto(monkeypatch, tmp_path):
    taken = {}

    def fine_tune(data, out, **fields):
        taken.update(fields, data=data)
        return types.SimpleNamespace(numbers={}, folder=tmp_path)

    monkeypatch.setattr("effdet_keras.runs.fine_tune.fine_tune", fine_tune)
    run = ["train", "DATA", "--test-split", "none", "--out", str(tmp_path)]
    for size, taken_as in (("320", 320), ("192 256", (192, 256)), ("auto", "auto")):
        cli.main([*run, "--image-size", *size.split()])
        assert taken == {**taken, "image_size": taken_as, "data": "DATA"}
    assert taken["test_split"] is None


def test_split_by_is_taken_in_capitals_too(monkeypatch, tmp_path):
    """`--help` writes it in small letters, issues and mails in capitals."""
    taken = {}

    def fine_tune(data, out, **fields):
        taken.update(fields)
        return types.SimpleNamespace(numbers={}, folder=tmp_path)

    monkeypatch.setattr("effdet_keras.runs.fine_tune.fine_tune", fine_tune)
    for word in ("FOLDER", "name", "Hash", "image"):
        cli.main(["train", "DATA", "--split-by", word, "--out", str(tmp_path)])
        assert taken["split_by"] == word.lower()


def test_ctrl_c_says_how_to_go_on(data, tmp_path, capsys, monkeypatch):
    out = tmp_path / "run"

    def stopped(*arguments, **fields):
        (out / "archive").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr("effdet_keras.runs.fine_tune.fine_tune", stopped)
    assert cli.main(["train", data, "--out", str(out)]) == 130
    said = capsys.readouterr()
    assert f"To resume: effdet-keras train --resume --out {out}" in said.out
    assert said.err == "effdet-keras: interrupted\n"
    (out / "archive").rmdir()
    (out / "finished.json").write_text("{}")  # the earlier run is there again
    assert cli.main(["train", data, "--out", str(out)]) == 130
    assert "To resume" not in capsys.readouterr().out


def test_ctrl_c_while_the_network_is_away(memory, capsys, monkeypatch):
    out = "memory://bucket/run 3"

    def stopped(*arguments, **fields):
        RunFolder(out).archive.mkdir(parents=True)
        monkeypatch.setattr(remote_files, "list_folder", away)
        raise KeyboardInterrupt

    def away(address):
        raise OSError(f"'{address}' cannot be listed: network is down")

    monkeypatch.setattr("effdet_keras.runs.fine_tune.fine_tune", stopped)
    assert cli.main(["train", "DATA", "--out", out]) == 130
    said = capsys.readouterr()
    assert f"To resume: effdet-keras train --resume --out '{out}'" in said.out
    assert said.err == "effdet-keras: interrupted\n"
