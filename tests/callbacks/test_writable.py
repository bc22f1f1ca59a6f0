"""What callbacks cannot work with is found before the first step."""

import os
import pathlib

import pytest

from effdet_keras.callbacks import CheckpointArchive, COCOEvaluation, ImageSummary
from effdet_keras.data import from_arrays

pytestmark = pytest.mark.tensorflow


def test_tensorboard_writes_where_tensorflow_can(valid, tmp_path, monkeypatch):
    import tensorflow as tf

    monkeypatch.chdir(tmp_path)
    callback = ImageSummary(valid, "ram://logs/run")
    callback.on_train_begin()
    callback._writer.scalars({"AP": 0.5}, step=1)
    callback.on_train_end()
    (name,) = tf.io.gfile.listdir("ram://logs/run")
    assert name.startswith("events.out.tfevents")
    tf.io.gfile.rmtree("ram://logs")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("folder", ["memory://b/run", pathlib.Path("memory://b/run")])
def test_an_archive_at_an_address_makes_no_folder_of_its_name(
    folder, memory, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert CheckpointArchive(folder).folder.is_relative_to(tmp_path / "cache")
    assert os.listdir(tmp_path) == ["cache"]


@pytest.mark.parametrize(
    "make",
    [
        lambda valid, folder: CheckpointArchive(folder),
        lambda valid, folder: ImageSummary(valid, folder),
    ],
)
def test_callbacks_refuse_before_training(make, valid, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="file"):
        make(valid, tmp_path / "file" / "run").on_train_begin()


def test_an_empty_dataset_is_refused(tmp_path):
    empty = from_arrays([], [], [], class_names=("cat",))
    with pytest.raises(ValueError, match="with images"):
        COCOEvaluation(empty)
    with pytest.raises(ValueError, match="with images"):
        ImageSummary(empty, log_dir=tmp_path)
