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
    callback = COCOEvaluation(valid, log_dir="ram://logs/run", verbose=False)
    callback._writer.require_writable()
    callback._writer.scalars({"coco/AP": 0.5}, step=1)
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
        lambda valid, folder: COCOEvaluation(valid, log_dir=folder),
    ],
)
def test_callbacks_refuse_before_training(make, valid, tmp_path):
    (tmp_path / "file").write_text("mine")
    callback = make(valid, tmp_path / "file" / "run")
    with pytest.raises(OSError, match="file"):
        callback.on_train_begin()


@pytest.mark.parametrize("make", [ImageSummary, COCOEvaluation])
def test_an_empty_dataset_is_refused(make, tmp_path):
    with pytest.raises(ValueError, match="with images"):
        make(from_arrays([], [], [], class_names=("cat",)), log_dir=tmp_path)
