"""A folder that cannot be written to is found before the first step."""

import os
import tempfile

import pytest

from effdet_keras.callbacks import CheckpointArchive, COCOEvaluation, ImageSummary
from effdet_keras.callbacks.writable import require_writable

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


def test_addresses_are_left_to_tensorflow():
    require_writable("gs://bucket/logs", "`X`")
    assert not os.path.exists("gs:")


@pytest.mark.parametrize("kind", [CheckpointArchive, ImageSummary, COCOEvaluation])
def test_callbacks_refuse_before_training(kind, valid, tmp_path):
    (tmp_path / "file").write_text("mine")
    folder = tmp_path / "file" / "run"
    callback = {
        CheckpointArchive: lambda: CheckpointArchive(folder),
        ImageSummary: lambda: ImageSummary(valid, folder),
        COCOEvaluation: lambda: COCOEvaluation(valid, log_dir=folder),
    }[kind]()
    with pytest.raises(OSError, match="must be able to write"):
        callback.on_train_begin()
