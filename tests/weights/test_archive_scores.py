"""Thresholds in an archive: stored, loaded, exported, and nothing else changed."""

import zipfile

import keras
import pytest
from support.tiny import batch, tiny_model

import effdet_keras as ek
from effdet_keras.evaluate.thresholds import ScoreSettings
from effdet_keras.weights.archive import store_score_settings, write_archive

SETTINGS = ScoreSettings((0.1 + 0.2, 0.5, 1 / 3), temperature=10 / 7)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """An archive of a training: with averages, and a state of the optimizer."""
    model = tiny_model()
    model.compile(recipe="reference", run_eagerly=True)
    model.train_on_batch(*batch())
    path = tmp_path_factory.mktemp("archive") / "best.keras"
    write_archive(model, path, {"epoch": 3})
    return path.read_bytes()


@pytest.fixture
def path(original, tmp_path):
    path = tmp_path / "best.keras"
    path.write_bytes(original)
    return path


def entries(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_settings_are_stored_and_all_else_stays(path):
    before = entries(path)
    assert store_score_settings(path, SETTINGS) == path
    after = entries(path)
    assert list(after) == list(before)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"config.json", "archive.json"}
    info = ek.read_archive_info(path)
    assert info["score_settings"] == SETTINGS.to_dict() and info["epoch"] == 3
    for resume in (False, True):
        model = ek.EfficientDet.from_archive(path, resume=resume)
        assert model.score_settings == SETTINGS
    assert ek.Predictor.load(path.parent).score_settings == SETTINGS
    other = ScoreSettings((0.3, 0.3, 0.3))
    store_score_settings(path, other)  # again
    assert ek.EfficientDet.from_archive(path).score_settings == other


def test_other_files_are_refused_and_stay(path, tmp_path):
    before = path.read_bytes()
    with pytest.raises(ValueError, match="its 3 classes.*thresholds=1"):
        store_score_settings(path, ScoreSettings((0.5,)))
    assert path.read_bytes() == before
    for name in ("pets.tflite", "pets.weights.h5", "exported"):
        with pytest.raises(
            ValueError, match="stored only in a `.keras` file.*export that"
        ):
            store_score_settings(tmp_path / name, SETTINGS)
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        store_score_settings(tmp_path / "nothing.keras", SETTINGS)
    other = tmp_path / "other.keras"
    keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)]).save(other)
    with pytest.raises(ValueError, match="a model of the class"):
        store_score_settings(other, SETTINGS)
    damaged = bytearray(before)
    damaged[len(damaged) // 2] ^= 255
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="is damaged"):
        store_score_settings(path, SETTINGS)
    assert path.read_bytes() == damaged
