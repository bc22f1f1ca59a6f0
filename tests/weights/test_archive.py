"""Archives: what they hold, how they come back, and a kill in mid-write."""

import json
import os
import zipfile

import keras
import numpy as np
import pytest
from keras import ops
from support import killed_archives, programs
from support.arrays import assert_equal
from support.tiny import LITE0, StandIn, tiny_model

import effdet_keras as ek
from effdet_keras.evaluate.thresholds import ScoreSettings
from effdet_keras.train.optimizers import steps_done
from effdet_keras.weights.archive import (
    copy_archive,
    load_archive,
    read_archive_info,
    store_score_settings,
    write_archive,
)
from effdet_keras.weights.kinds.own import read_own_weights
from effdet_keras.weights.read_weights import read_weights


@pytest.fixture(scope="module")
def model():
    """Compiled, with averages and optimizer state that differ from the start."""
    model = tiny_model(backbone=LITE0, category_ids=(7, 5, 9))
    model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9))
    model.optimizer.build(model.trainable_variables)
    for variable in model.optimizer.variables[2:]:
        variable.assign(variable + 0.25)
    model.optimizer.iterations.assign(12)
    for average in model.averages.variables:
        average.assign(average * 0.5 + 0.01)
    return model


@pytest.fixture(scope="module")
def file(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "best.keras"
    info = {
        "epoch": 3,
        "metrics": {"AP": np.float32(0.5), "loss": float("nan")},
        "evaluated_weights": "averages",
    }
    write_archive(model, path, info)
    return path


@pytest.fixture(scope="module")
def resumed(file):
    return load_archive(file, resume=True)


@pytest.fixture
def loads_stand_in(monkeypatch):
    """Makes Keras load a `StandIn`, and gives the list of paths it loads."""
    paths = []
    monkeypatch.setattr(
        keras.saving, "load_model", lambda path: paths.append(path) or StandIn()
    )
    return paths


def test_an_archive_says_what_it_is(model, file):
    info = read_archive_info(file)
    assert info["config"] == json.loads(json.dumps(model.config.to_dict()))
    assert type(model.config)(**info["config"]) == model.config
    assert info["class_names"] == ["cat", "dog", "bird"]
    assert info["category_ids"] == [7, 5, 9]
    assert info["versions"]["keras"] == keras.__version__
    assert info["versions"]["numpy"] == np.__version__
    assert info["backend"] == keras.backend.backend()
    assert info["created"].endswith("+00:00")
    assert info["epoch"] == 3
    assert info["metrics"] == {"AP": 0.5, "loss": None}  # JSON has no NaN
    assert read_archive_info(file.parent) == info
    assert [path.name for path in file.parent.iterdir()] == ["best.keras"]


@pytest.mark.smoke
def test_resuming_restores_everything(model, resumed):
    assert resumed.config == model.config
    assert resumed.class_names == ("cat", "dog", "bird")
    assert resumed.category_ids == (7, 5, 9)
    assert any(v.name == "seed_generator_state" for v in model.variables)
    with model.averages.swapped():
        assert_equal(resumed.variables, model.variables)
        assert_equal(resumed.averages.variables, model.averages.variables)
    assert_equal(resumed.optimizer.variables, model.optimizer.variables)
    assert int(ops.convert_to_numpy(resumed.optimizer.iterations)) == 12


def test_loading_gives_the_weights_that_were_evaluated(model, file):
    loaded = load_archive(file)
    assert_equal(loaded.averages.sources, model.averages.values)
    images = np.random.default_rng(0).uniform(0, 255, (1, 64, 64, 3))
    with model.averages.swapped():
        expected = model(images)
    outputs = loaded(images)
    for name in outputs:
        np.testing.assert_array_equal(
            ops.convert_to_numpy(outputs[name]), ops.convert_to_numpy(expected[name])
        )


def test_a_new_training_from_an_archive_starts_with_a_new_optimizer(model, file):
    """Of the weights that were evaluated, and compiled as the file's model was."""
    loaded = ek.EfficientDet.from_archive(file)
    assert_equal(loaded.averages.sources, model.averages.values)
    assert_equal(loaded.averages.values, model.averages.values)
    assert loaded.settings.requested_recipe.optimizer is not None
    assert loaded.optimizer.momentum == 0.9
    assert steps_done(loaded.optimizer) == 0
    for variable in loaded.optimizer.momentums:
        np.testing.assert_array_equal(ops.convert_to_numpy(variable), 0.0)


def test_a_file_of_model_save_loads_too_but_has_no_info(tmp_path):
    plain = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(3)])
    path = tmp_path / "plain.keras"
    plain.save(path)
    assert_equal(load_archive(path).weights, plain.weights)
    with pytest.raises(ValueError, match="CheckpointArchive"):
        read_archive_info(path)


def test_a_folder_gives_the_best_or_to_resume_the_last(file, tmp_path, loads_stand_in):
    copy_archive(file, tmp_path / "last.keras")
    load_archive(tmp_path, resume=True)
    load_archive(tmp_path)  # of a training that was never evaluated
    copy_archive(file, tmp_path / "best.keras")
    load_archive(tmp_path)
    names = [path.name for path in loads_stand_in]
    assert names == ["last.keras", "last.keras", "best.keras"]


@pytest.fixture(scope="module")
def run(file, tmp_path_factory):
    """The folder of a run, with what a training leaves in it."""
    folder = tmp_path_factory.mktemp("runs") / "cats"
    folder.mkdir()
    (folder / "configuration.yaml").write_text("data: cells\n")
    for name in ("best.keras", "last.keras"):
        copy_archive(file, folder / "archive" / name)
    return folder


def weights_of(model):
    return model.get_weights()[0]


def stored_in(run):
    return store_score_settings(run, ScoreSettings([0.1, 0.2, 0.3])).parent.name


PLACES = {
    "from_archive": lambda run: weights_of(ek.EfficientDet.from_archive(run)),
    "resume": lambda run: weights_of(ek.EfficientDet.from_archive(run, resume=True)),
    "Predictor": lambda run: weights_of(ek.Predictor.load(run).detector),
    "load_pretrained": lambda run: weights_of(loaded(run)),
    "weights": lambda run: read_weights(run, None).class_names,
    "info": lambda run: ek.read_archive_info(run)["epoch"],
    "thresholds": stored_in,
}


def loaded(run):
    model = tiny_model(backbone=LITE0)
    model.load_pretrained(run, verbose=0)
    return model


@pytest.mark.parametrize("place", PLACES)
def test_a_run_is_taken_wherever_an_archive_is(run, place):
    np.testing.assert_array_equal(PLACES[place](run), PLACES[place](run / "archive"))


def test_a_run_without_a_checkpoint_is_told(tmp_path):
    (tmp_path / "configuration.yaml").write_text("data: cells\n")
    for opener in (ek.EfficientDet.from_archive, ek.Predictor.load):
        with pytest.raises(FileNotFoundError, match="checkpoint"):
            opener(tmp_path)


def zipped(path, **entries):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.json", json.dumps(content))
    return path.read_bytes()


NEWER = {"format": 99, "versions": {"effdet_keras": "99.0"}}


@pytest.mark.parametrize("read", [read_archive_info, load_archive, read_own_weights])
def test_what_is_no_archive_is_refused(file, tmp_path, read):
    whole, path = file.read_bytes(), tmp_path / "cats.keras"
    with pytest.raises(FileNotFoundError, match=r"cats\.keras"):
        read(path)
    for content, message in (
        (b"no zip file at all", "damaged, or is not a `.keras` file"),
        (whole[: len(whole) // 2], "damaged"),
        (whole[:-100], "damaged"),
        (zipped(path, readme="hello"), r"not a checkpoint of Keras.*readme\.json"),
        (zipped(path, config={}, archive=NEWER), r"newer effdet_keras \(99\.0"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read(path)


def test_one_wrong_bit_in_the_weights_is_found(file, tmp_path):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "flipped.keras").write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged.*weights"):
        load_archive(tmp_path / "flipped.keras")


def test_what_cannot_be_written_is_told(model, tmp_path):
    with pytest.raises(ValueError, match=r"'\.keras'.*best\.h5"):
        write_archive(model, tmp_path / "best.h5")


@pytest.mark.parametrize("of_averages", [False, True])
def test_numbers_that_are_none_do_not_replace_a_good_checkpoint(tmp_path, of_averages):
    model, path = StandIn(), tmp_path / "a.keras"
    write_archive(model, path, {"epoch": 1})
    weights = model.averages.variables if of_averages else model.weights
    weights[0].assign(np.full(weights[0].shape, np.nan))
    with pytest.raises(FloatingPointError, match="a.keras' was not written: 1 of its"):
        write_archive(model, path, {"epoch": 2})
    assert read_archive_info(path)["epoch"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a.keras"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forks")
@pytest.mark.tensorflow
def test_a_process_that_is_killed_in_mid_write_leaves_the_checkpoint_of_before(
    tmp_path,
):
    programs.run_alone(programs.SUPPORT / "killed_archives.py", tmp_path)
    for place in killed_archives.PLACES:
        path = tmp_path / f"{place}.keras"
        assert read_archive_info(path)["epoch"] == 1, place
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None, place
    # What was begun keeps a hidden name, which no reader takes for a checkpoint.
    begun = [p.name for p in tmp_path.iterdir() if p.stem not in killed_archives.PLACES]
    assert begun and all(name.startswith(".") for name in begun)
