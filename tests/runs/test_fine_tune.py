"""`fine_tune`: one call from a dataset to a judged detector."""

import json
import shutil

import keras
import numpy as np
import pytest
from PIL import Image
from support.tiny_run import tiny_run

import effdet_keras as ek
from effdet_keras.runs.requested import build_configuration
from effdet_keras.visualize import batch_grid

pytestmark = pytest.mark.tensorflow


class FirstBatch(keras.callbacks.Callback):
    """Keeps what the first training step gets."""

    batch = None

    def on_train_begin(self, logs=None):
        compute_loss = self.model.compute_loss

        def spy(x=None, y=None, *arguments, **options):
            if self.batch is None:
                arrays = {name: np.array(value) for name, value in y.items()}
                self.batch = np.array(x), arrays
            return compute_loss(x, y, *arguments, **options)

        self.model.compute_loss = spy


first_batch = FirstBatch()


@pytest.fixture(scope="module")
def trained(shapes, tmp_path_factory):
    """A run of two epochs in a folder, and what it returned."""
    out = tmp_path_factory.mktemp("runs") / "first"
    fields = tiny_run(epochs=2, validation_losses=True)
    return out, ek.fine_tune(shapes, out=out, callbacks=[first_batch], **fields)


@pytest.fixture
def run(trained, tmp_path):
    """A copy of that run, to change."""
    return shutil.copytree(trained[0], tmp_path / "run")


def rows(folder):
    return list(map(json.loads, (folder / "log.jsonl").read_text().splitlines()))


@pytest.mark.smoke
def test_it_returns_the_best_checkpoint_and_its_numbers(trained):
    out, result = trained
    assert result.folder == out and result.split == "validation"
    assert result.model.class_names == ("circle", "square", "triangle")
    assert {"AP", "AP50", "AP/circle"} <= set(result.numbers)
    for name in ("loss", "val_loss", "AP", "learning_rate"):
        assert (
            len(result.history[name]) == 2 and np.isfinite(result.history[name]).all()
        )
    best = max(result.history["AP"])
    assert result.numbers["AP"] == pytest.approx(best, abs=1e-6)


def test_the_folder_has_all_of_the_run(trained, shapes):
    out, result = trained
    assert json.loads((out / "finished.json").read_text())["epoch"] == 2
    there = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    assert there == {
        "configuration.yaml",
        "environment.json",
        "data.json",
        "numbers.json",
        "log.jsonl",
        "log.txt",
        "archive",
        "curves.png",
        "report.html",
        "first_batch.png",
        "finished.json",
    }
    configuration = ek.RunConfiguration.read(out / "configuration.yaml")
    assert (configuration.data, configuration.epochs) == (str(shapes), 2)
    environment = json.loads((out / "environment.json").read_text())
    assert environment["seed"] == 0
    assert environment["packages"]["keras"] == keras.__version__
    data = json.loads((out / "data.json").read_text())
    assert data["path"] == str(shapes) and data["splits"]["train"]["images"] == 4
    assert json.loads((out / "numbers.json").read_text())["AP"] == result.numbers["AP"]
    assert result.evaluation.coco == result.numbers
    page = (out / "report.html").read_text()
    for text in ("<h2>Training</h2>", "<h2>Configuration</h2>", "ema_decay", "<img"):
        assert text in page
    assert [row["epoch"] for row in rows(out)] == [1, 2]
    text = (out / "log.txt").read_text()
    assert "epoch 1/2  loss" in text and "\r" not in text
    assert text.count("Only 4 images: expect AP to differ") == 1
    assert text.count("The model has not even learned its training images") == 1
    assert "The model has not even learned its training images" in page
    assert 'Recipe "auto"' in text and "on the 2 images of 'validation'" in text


def test_the_first_batch_is_drawn_as_the_first_step_gets_it(trained):
    out, result = trained
    images, truth = first_batch.batch
    expected = batch_grid(images, truth, result.model.class_names)
    assert expected.shape == (132, 132, 3)  # two by two, 4 pixels apart
    np.testing.assert_array_equal(Image.open(out / "first_batch.png"), expected)


def test_what_is_wrong_is_told_before_an_old_run_is_removed(run, shapes):
    for fields in ({"freeze": "nothing_matches"}, {"weights": "nowhere.h5"}):
        with pytest.raises((ValueError, OSError)):
            ek.fine_tune(shapes, out=run, overwrite=True, **tiny_run(**fields))
        assert len(rows(run)) == 2 and (run / "archive" / "best.keras").exists()


def test_a_run_that_is_done_takes_the_last_checkpoint_for_a_damaged_best(run, capsys):
    best = run / "archive" / "best.keras"
    damaged = best.read_bytes()[:-100]
    best.unlink()
    best.write_bytes(damaged)
    ek.fine_tune(out=run, resume=True)
    said = capsys.readouterr().out
    assert "best.keras' is damaged, and was renamed to 'best.damaged.keras'" in said
    assert "The last checkpoint, of epoch 2" in said
    assert best.with_name("best.damaged.keras").read_bytes() == damaged


def test_a_run_goes_on_as_it_was_configured(run):
    with pytest.raises(ValueError, match=r"learning_rate=0\.5, but it began with None"):
        ek.fine_tune(out=run, resume=True, learning_rate=0.5)
    with pytest.raises(ValueError, match="but it began with"):
        ek.fine_tune(out=run, resume=True, hparams="gamma=2.0")
    with pytest.raises(FileNotFoundError, match="configuration.yaml"):
        ek.fine_tune(out=run.parent / "nowhere", resume=True)
    with pytest.raises(ValueError, match="name it with `out`"):
        ek.fine_tune("cells", resume=True)


def test_a_run_whose_checkpoints_are_gone_does_not_begin_anew(run):
    before = (run / "log.jsonl").read_text()
    shutil.rmtree(run / "archive")
    with pytest.raises(
        RuntimeError, match=r"a log of 2 epochs, but no checkpoint.*over"
    ):
        ek.fine_tune(out=run, resume=True, epochs=3)
    assert (run / "log.jsonl").read_text() == before


def test_a_run_does_not_go_on_with_other_data(run, shapes, tmp_path):
    other = shutil.copytree(shapes, tmp_path / "other")
    truth = json.loads((other / "train.json").read_text())
    truth["annotations"].pop()
    (other / "train.json").write_text(json.dumps(truth))
    with pytest.raises(RuntimeError, match="its train images are not the same as"):
        ek.fine_tune(other, out=run, resume=True, epochs=3)


@pytest.mark.slow
def test_a_training_without_evaluation_keeps_the_last_checkpoint(
    shapes, tmp_path, capsys, recwarn
):
    out = tmp_path / "run"
    result = ek.fine_tune(shapes, out=out, **tiny_run(one_batch=True, evaluate_every=0))
    assert (result.numbers, result.split, result.evaluation) == ({}, None, None)
    assert "The last checkpoint, of epoch 1, was not evaluated." in (
        capsys.readouterr().out
    )
    assert [p.name for p in (out / "archive").glob("*.keras")] == ["last.keras"]
    assert not (out / "numbers.json").exists() and (out / "finished.json").exists()
    assert set(rows(out)[0]) & {"AP", "loss"} == {"loss"}
    assert not [w for w in recwarn if "best.keras" in str(w.message)]


@pytest.mark.slow
def test_datasets_in_memory_and_no_folder(shapes, capsys):
    splits = ek.data.load_splits(shapes)
    capsys.readouterr()
    data = {"train": splits["train"], "test": splits["valid"]}
    fields = tiny_run(one_batch=True, validation_fraction=0.5, verbose=0)
    result = ek.fine_tune(data, **fields)
    assert (result.folder, result.split) == (None, "test")
    assert len(result.history["loss"]) == 1
    assert not capsys.readouterr().out


def test_hparams_and_fields_count_in_this_order(tmp_path, capsys):
    path = tmp_path / "base.yaml"
    ek.RunConfiguration(loss={"gamma": 1.0, "alpha": 0.3}, seed=4).write(path)
    hparams = "gamma=2.0,num_epochs=9,delta=0.2,data_format=channels_first"
    run = build_configuration(path, hparams, {"loss": {"delta": 0.3}, "epochs": 2})
    assert run.loss == {"gamma": 2.0, "alpha": 0.3, "delta": 0.3}
    assert (run.seed, run.epochs, run.recipe) == (4, 2, "reference")
    assert (
        "data_format='channels_first': the data format is always"
        in capsys.readouterr().out
    )


class Stop(keras.callbacks.Callback):
    """Ctrl-C in the second epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            raise KeyboardInterrupt


def epochs_of_tensorboard(folder, name):
    """The epochs, from 0, for which there is a number of this name."""
    events = pytest.importorskip("tensorboard.backend.event_processing")
    found = events.event_accumulator.EventAccumulator(str(folder)).Reload()
    return [event.step for event in found.Tensors(name)]


@pytest.mark.slow
def test_what_is_stopped_leaves_a_curve_and_goes_on(shapes, tmp_path):
    pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    out = tmp_path / "run"
    fields = tiny_run(epochs=2, tensorboard="auto", seed=2)
    with pytest.raises(KeyboardInterrupt):
        ek.fine_tune(shapes, out=out, callbacks=[Stop()], **fields)
    assert (out / "curves.png").exists() and not (out / ".in_use.json").exists()
    assert not (out / "numbers.json").exists()
    events = list((out / "tensorboard").rglob("events*"))
    assert any(b"first batch" in path.read_bytes() for path in events)
    before = rows(out)
    result = ek.fine_tune(shapes, out=out, resume=True, **{**fields, "epochs": 3})
    after = rows(out)
    assert [row["epoch"] for row in after] == [1, 2, 3] and after[:1] == before
    assert [row["steps"] for row in after] == [1, 2, 3]
    assert epochs_of_tensorboard(out / "tensorboard" / "train", "epoch_AP") == [0, 1, 2]
    assert "3 epochs" in (out / "report.html").read_text()
    assert len(result.history["loss"]) == 3
    assert ek.RunConfiguration.read(out / "configuration.yaml").epochs == 3
    text = (out / "log.txt").read_text()
    assert "Resuming at epoch 2." in text and "epoch 1/2" in text
    assert text.count("best AP") == 3
    assert "epoch 3/3" in text and text.count("\n-- 2") == 1


def test_patience_counts_evaluations_and_ends_the_run(
    shapes, tmp_path, capsys, recwarn
):
    out = tmp_path / "run"
    # With next to no rate nothing gets better than the first evaluation.
    never = {"learning_rate": 1e-12, "epochs": 12, "evaluate_every": 2, "patience": 2}
    ek.fine_tune(shapes, out=out, **tiny_run(**never))
    assert len(rows(out)) == 6  # the evaluations of epochs 2, 4 and 6
    assert not any("conditioned on metric" in str(w.message) for w in recwarn)
    assert "early stopping" in capsys.readouterr().out
    ek.fine_tune(out=out, resume=True)
    assert "Run is complete (6 of 12 epochs)." in capsys.readouterr().out
    assert len(rows(out)) == 6


@pytest.mark.slow  # half a minute: three trainings
def test_a_quantization_aware_run_with_a_teacher_goes_on_to_the_same_bits(
    shapes, trained, tmp_path
):
    teacher = ek.EfficientDet.from_archive(trained[0] / "archive")
    fields = tiny_run(epochs=2, anchors="auto", verbose=0)
    fields |= {"quantize_aware": {"range_steps": 9}, "teacher": trained[0] / "archive"}
    whole = ek.fine_tune(shapes, out=tmp_path / "whole", **fields)
    with pytest.raises(KeyboardInterrupt):
        ek.fine_tune(shapes, out=tmp_path / "run", callbacks=[Stop()], **fields)
    result = ek.fine_tune(out=tmp_path / "run", resume=True)
    assert result.history["distillation_loss"] == whole.history["distillation_loss"]
    assert np.isfinite(result.history["distillation_loss"]).all()
    for one, other in zip(whole.model.get_weights(), result.model.get_weights()):
        np.testing.assert_array_equal(one, other)
    assert result.model.config.anchor_scale == teacher.config.anchor_scale
    assert result.model.quantization.get_config()["range_steps"] == 9
    assert result.model.quantization.is_rounding


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "nothing to train on"),
        ({"out": "run", "resume": True, "overwrite": True}, "leave `overwrite` out"),
        ({"data": "cells", "epoch": 3}, "Did you mean 'epochs'"),
    ],
    ids=str,
)
def test_wrong_arguments_are_told(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ek.fine_tune(**arguments)


def test_a_class_is_added_from_data_that_has_it_alone(trained, shapes, tmp_path):
    """The old classes come first, keep their ids and compute what they did."""
    out, _ = trained
    old = tmp_path / "old.keras"
    detector = ek.EfficientDet.from_archive(out)
    two = ("square", "circle")
    config = detector.config.replace(num_classes=2)
    model = ek.EfficientDet(config, class_names=two, category_ids=(7, 3))
    model.load_pretrained(out / "archive" / "best.keras", verbose=0)
    model.save(old)
    splits = {
        name: dataset.filter(classes=["triangle"])
        for name, dataset in ek.data.load_splits(shapes).items()
    }
    fields = tiny_run(epochs=1, weights=str(old), freeze="all-but-new-classes")
    result = ek.fine_tune(splits, **{**fields, "image_size": "auto"})
    assert result.model.class_names == (*two, "triangle")
    assert result.model.category_ids == (7, 3, 8)
    assert result.model.config.image_size == (64, 64)
    assert "AP/triangle" in result.numbers
    images = np.random.default_rng(0).integers(0, 255, (2, 64, 64, 3), "uint8")
    after, before = (one(images, training=False) for one in (result.model, model))
    np.testing.assert_array_equal(after["box_deltas"], before["box_deltas"])
    scores = after["class_logits"][..., :2]
    # Of other kernels for matrices of another shape the last bits may differ.
    np.testing.assert_allclose(scores, before["class_logits"], rtol=1e-4, atol=1e-5)
    assert result.model.frozen_labels == (0, 1)


def test_classes_are_not_added_to_a_backbone(shapes):
    fields = tiny_run(epochs=1, freeze="all-but-new-classes")
    with pytest.raises(ValueError, match="no complete detector was loaded"):
        ek.fine_tune(shapes, **fields)


def test_steps_to_profile_after_the_end_are_told_before_the_training(shapes, tmp_path):
    fields = tiny_run(epochs=None, steps=1, profile="50,60")
    with pytest.raises(ValueError, match="`profile` must be within the 1 step of"):
        ek.fine_tune(shapes, out=tmp_path / "run", **fields)
    assert not (tmp_path / "run" / "configuration.yaml").exists()


def test_a_run_with_a_damaged_log_stays_as_it_is(run):
    with (run / "log.jsonl").open("a") as log:
        log.write('{"epoch": 3, "lo')
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.*")}
    with pytest.raises(RuntimeError, match=r"Line 3 of '.*log\.jsonl' is damaged"):
        ek.fine_tune(out=run, resume=True, epochs=3)
    after = {path: path.stat().st_mtime_ns for path in run.rglob("*.*")}
    assert after == before


def test_an_earlier_run_is_back_if_the_new_one_fails_at_once(run, shapes, capsys):
    """Its files, and those of the user, are as they were."""
    (run / "export").mkdir()
    (run / "export" / "my_notes.txt").write_text("mine")
    before = {path: path.read_bytes() for path in run.rglob("*.*")}
    fields = tiny_run(epochs=1, optimizer="sgd", learning_rate=1e30, batch_size=2)
    with pytest.raises(FloatingPointError):
        ek.fine_tune(shapes, out=run, overwrite=True, **fields)
    assert {path: path.read_bytes() for path in run.rglob("*.*")} == before
    assert f"the earlier run is again in '{run}'" in capsys.readouterr().out
