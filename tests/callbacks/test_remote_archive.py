"""Checkpoints at an address: written while it trains, and opened by all that opens."""

import numpy as np
import pytest
from support.remote import memory_files
from support.tiny import StandIn, tiny_model

from effdet_keras.callbacks import CheckpointArchive
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.predictor import Predictor
from effdet_keras.weights.archive import read_archive_info

pytestmark = pytest.mark.tensorflow


def train(model, epoch):
    """What `fit` would have a callback do in one epoch."""
    callback = CheckpointArchive("memory://bucket/run", monitor="loss", mode="min")
    callback.set_model(model)
    callback.on_train_begin()
    callback.on_epoch_end(epoch, {"loss": 2.0 - epoch})
    callback.on_train_end()
    return callback


def test_a_training_goes_on_from_its_address_on_another_machine(
    memory, tmp_path, monkeypatch
):
    model = tiny_model()
    model.compile(recipe="reference")
    train(model, 0)
    assert {"/bucket/run/last.keras", "/bucket/run/best.keras"} == set(memory_files())
    monkeypatch.setenv("EFFDET_KERAS_CACHE", str(tmp_path / "another"))
    resumed = EfficientDet.from_archive("memory://bucket/run", resume=True)
    callback = train(resumed, 1)
    assert callback.folder.is_relative_to(tmp_path / "another")
    assert read_archive_info("memory://bucket/run/last.keras")["epoch"] == 2
    weights = model.get_weights()[0]
    other = tiny_model()
    other.load_pretrained("memory://bucket/run", verbose=0)
    opened = Predictor.load("memory://bucket/run").detector
    for one in (other, opened, resumed):
        np.testing.assert_array_equal(one.get_weights()[0], weights)


def test_a_training_whose_files_cannot_be_copied_fails_at_its_end(memory, monkeypatch):
    real = type(memory).put_file

    def only_locks(self, source, target, **options):
        if not target.endswith(".json"):
            raise OSError("quota is used up")
        return real(self, source, target, **options)

    monkeypatch.setattr(type(memory), "put_file", only_locks)
    with pytest.raises(
        OSError, match="Not all files could be copied.*quota is used up"
    ):
        train(StandIn(), 0)
    folder = CheckpointArchive("memory://bucket/run").folder
    assert (folder / "last.keras").is_file()
    assert memory_files() == {}


def test_a_last_checkpoint_that_was_cut_off_at_its_address(memory, tmp_path):
    model = tiny_model()
    model.compile(recipe="reference")
    for epoch in (0, 1):
        train(model, epoch)
    name = "/bucket/run/last.keras"
    memory.pipe_file(name, memory_files()[name][:-100])
    with pytest.warns(
        UserWarning, match="last.keras' is damaged.*continues from"
    ) as told:
        resumed = EfficientDet.from_archive("memory://bucket/run", resume=True)
    assert "'memory://bucket/run/last.keras' is damaged" in str(told[0].message)
    assert "from 'memory://bucket/run/best.keras'" in str(told[0].message)
    np.testing.assert_array_equal(resumed.get_weights()[0], model.get_weights()[0])
    for name, content in memory_files().items():
        if name.endswith(".keras"):
            memory.pipe_file(name, content[:-100])
    with pytest.raises(ValueError, match="No checkpoint in 'memory://bucket/run' can"):
        EfficientDet.from_archive("memory://bucket/run", resume=True)
