"""What callbacks cannot work with is found before the first step."""

import os
import pathlib
import tempfile

import pytest

from effdet_keras.callbacks import CheckpointArchive, COCOEvaluation, ImageSummary
from effdet_keras.callbacks.tensorboard import require_writable
from effdet_keras.data import from_arrays

pytestmark = pytest.mark.tensorflow


def test_a_folder_is_made_and_left_empty(tmp_path):
    require_writable(tmp_path / "a" / "b", "`X`")
    assert os.listdir(tmp_path / "a" / "b") == []


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match=r"`X` must be able to write.*file.run"):
        require_writable(tmp_path / "file" / "run", "`X`")
    assert (tmp_path / "file").read_text() == "mine"


def test_no_permission_is_named(tmp_path, monkeypatch):
    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)  # root may write anywhere
    with pytest.raises(PermissionError, match="Permission denied.*another one"):
        require_writable(tmp_path, "`X`")


@pytest.mark.parametrize("as_path", [str, pathlib.PurePosixPath])
def test_tensorboard_writes_where_tensorflow_can(valid, tmp_path, monkeypatch, as_path):
    import tensorflow as tf

    monkeypatch.chdir(tmp_path)
    callback = COCOEvaluation(valid, log_dir=as_path("ram://logs/run"), verbose=False)
    callback._writer.require_writable()
    callback._writer.scalars({"coco/AP": 0.5}, step=1)
    callback.on_train_end()
    (name,) = tf.io.gfile.listdir("ram://logs/run")
    assert name.startswith("events.out.tfevents")
    tf.io.gfile.rmtree("ram://logs")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", [ImageSummary, COCOEvaluation])
def test_an_address_where_tensorflow_cannot_write_is_named(
    kind, valid, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    callback = kind(valid, log_dir="nowhere://logs")
    with pytest.raises(OSError, match="TensorFlow can write.*'nowhere://logs'"):
        callback.on_train_begin()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("folder", ["memory://b/run", pathlib.Path("memory://b/run")])
def test_an_archive_at_an_address_makes_no_folder_of_its_name(
    folder, memory, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert CheckpointArchive(folder).folder.is_relative_to(tmp_path / "cache")
    assert os.listdir(tmp_path) == ["cache"]


def test_a_file_url_is_a_folder_on_this_machine(valid, tmp_path):
    url = tmp_path.as_uri()
    assert CheckpointArchive(url).folder == tmp_path
    assert ImageSummary(valid, url)._writer.log_dir == str(tmp_path)


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
    with pytest.raises(OSError, match="must be able to write"):
        callback.on_train_begin()


def summary(dataset, **arguments):
    return ImageSummary(dataset, "unused", **arguments)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (COCOEvaluation, ("every", "batch_size")),
        (summary, ("num_images", "every", "max_side")),
    ],
)
def test_a_number_below_one_and_an_empty_dataset_are_refused(make, names, valid):
    for name in names:
        with pytest.raises(ValueError, match=f"{name}=0"):
            make(valid, **{name: 0})
    with pytest.raises(ValueError, match="with images"):
        make(from_arrays([], [], [], class_names=("cat",)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mode": "auto"}, "mode='auto'"),
        ({"keep": 0}, "`keep` must be above 0. Received: keep=0"),
    ],
)
def test_arguments_of_the_archive_out_of_range_are_named(wrong, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        CheckpointArchive(tmp_path, **wrong)
