"""A training that goes on from within an epoch is the one that was stopped."""

import json
import shutil
import warnings
import zipfile

import keras
import numpy as np
import pytest
from support.kinds import slow_but
from support.tiny import EAGER, Stream, batch, tiny_model

from effdet_keras.callbacks import CheckpointArchive
from effdet_keras.data import from_arrays
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.train import fit_callbacks
from effdet_keras.train.epoch_logger import EpochLogger
from effdet_keras.train.resume import TrainingPosition
from effdet_keras.weights.archive import read_archive_info

pytestmark = pytest.mark.tensorflow
EPOCHS, STEPS = 2, 2


class Batches(keras.callbacks.Callback):
    """The batches that it is told of."""

    def on_train_begin(self, logs=None):
        self.begun, self.ended = [], []

    def on_train_batch_begin(self, batch, logs=None):
        self.begun.append(batch)

    def on_train_batch_end(self, batch, logs=None):
        self.ended.append(batch)


def own_batches(model):
    images, truth = batch(2 * STEPS)
    dataset = from_arrays(
        images.astype("uint8"), truth["boxes"], truth["labels"], model.class_names
    )
    return model.batches(dataset, 2, training=True, seed=3)


def stream(model):
    return Stream(*(batch(2, box=(8, 8, 40, 40 + n)) for n in range(STEPS)))


DATA = {"own batches": own_batches, "a stream": stream}


def callbacks(folder):
    stopping = keras.callbacks.EarlyStopping("loss", mode="min", patience=5)
    archive = CheckpointArchive(
        folder, "class_loss", "min", verbose=False, save_every_steps=1, keep=9
    )
    return [stopping, Batches(), archive]


def new_model():
    keras.utils.set_random_seed(0)
    model = tiny_model()
    model.compile("momentum", run_eagerly=EAGER)
    return model


def write_as_older_version(path):
    """Replaces the names in an archive by those that an earlier version wrote."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    info = json.loads(entries["archive.json"])
    position = info.pop("training_position")
    info["place"] = {
        "epoch": position["epoch"],
        "step": position["step"],
        "steps": position["total_steps"],
        "seconds": position["seconds"],
        "means": position["metrics"],
        "callbacks": position["callback_states"],
        "is_stopped": position["is_stopped"],
        "seed": position["seed"],
    }
    entries["archive.json"] = json.dumps(info).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("is_older", [False, True])
@pytest.mark.parametrize("data", slow_but(["own batches"], DATA))
def test_the_rest_of_an_epoch_is_trained_as_if_it_had_not_stopped(
    data, is_older, tmp_path, capsys
):
    model, data = new_model(), DATA[data]
    of_whole = callbacks(tmp_path / "whole")
    same = {"epochs": EPOCHS, "shuffle": False}  # Keras would shuffle the stream
    whole = model.fit(data(model), **same, callbacks=of_whole)
    (tmp_path / "rest").mkdir()
    shutil.copy(
        tmp_path / "whole" / "step-00000003.keras", tmp_path / "rest" / "last.keras"
    )
    position = read_archive_info(tmp_path / "rest" / "last.keras")["training_position"]
    assert (position["epoch"], position["step"]) == (1, 1)
    assert position["total_steps"] == 3
    stopping = position["callback_states"]["EarlyStopping"]
    assert stopping["best"] == whole.history["loss"][0]
    if is_older:
        write_as_older_version(tmp_path / "rest" / "last.keras")
    capsys.readouterr()

    rest = EfficientDet.from_archive(tmp_path / "rest", resume=True)
    given = callbacks(tmp_path / "rest")
    history = rest.fit(data(rest), **same, callbacks=given)
    assert "Resuming at epoch 2, step 2." in capsys.readouterr().out
    assert history.epoch == [1]
    assert {name: values[1:] for name, values in whole.history.items()} == (
        history.history
    )
    for name in ("wait", "best", "best_epoch"):
        assert getattr(given[0], name) == getattr(of_whole[0], name)
    assert given[1].begun == given[1].ended == [1]
    for one, other in ((model, rest), (model.optimizer, rest.optimizer)):
        for a, b in zip(one.variables, other.variables, strict=True):
            np.testing.assert_array_equal(np.array(a.value), np.array(b.value))
    pairs = zip(model.averages.variables, rest.averages.variables, strict=True)
    assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in pairs)


def test_the_former_name_of_resume_from_still_works():
    model = tiny_model()
    model.compile(keras.optimizers.SGD(0.01), run_eagerly=EAGER)
    with pytest.warns(DeprecationWarning, match="resume_from"):
        model.go_on_from({"epoch": 3, "steps": 0})
    with pytest.warns(UserWarning, match="nothing left to train"):
        model.fit(own_batches(model), epochs=3, verbose=0)


def test_a_training_that_is_done_says_so():
    model = tiny_model()
    model.compile(keras.optimizers.SGD(0.01), run_eagerly=EAGER)
    model.resume_from(TrainingPosition(epoch=3))
    with pytest.warns(UserWarning, match="nothing left to train"):
        history = model.fit(own_batches(model), epochs=3, verbose=0)
    assert history.epoch == []


def test_data_that_fit_refuses_does_not_lose_where_the_checkpoint_was():
    model = tiny_model()
    model.compile(keras.optimizers.SGD(0.01), run_eagerly=EAGER)
    model.resume_from(TrainingPosition(epoch=3))
    with pytest.raises(ValueError, match="has no images"):
        model.fit(np.zeros((0, 64, 64, 3)), batch(1)[1])
    images, truth = batch()
    assert model.fit(images, truth, epochs=4, verbose=0).epoch == [3]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # nothing is left of the checkpoint
        assert model.fit(images, truth, epochs=1, verbose=0).epoch == [0]


class Evaluating(keras.callbacks.Callback):
    """Logs an AP, as `COCOEvaluation` does."""

    evaluates = True

    def __init__(self, aps):
        super().__init__()
        self.aps = aps

    def on_epoch_end(self, epoch, logs=None):
        logs["AP"] = self.aps[epoch]


class EpochLines(EpochLogger):
    """The class under its former name."""


def test_an_archive_of_before_goes_on_with_the_best_ap_of_its_epoch_lines(
    tmp_path, monkeypatch, capsys
):
    """States are saved by the class name, and that of `EpochLogger` was another."""
    model, data = new_model(), batch(2)
    aps = [0.5, 0.25]
    with monkeypatch.context() as patch:
        patch.setattr(fit_callbacks, "EpochLogger", EpochLines)
        callbacks = [Evaluating(aps), CheckpointArchive(tmp_path, verbose=False)]
        model.fit(*data, callbacks=callbacks)
    position = read_archive_info(tmp_path / "last.keras")["training_position"]
    assert position["callback_states"] == {"EpochLines": {"best": [0.5, 1]}}
    capsys.readouterr()
    model = EfficientDet.from_archive(tmp_path, resume=True)
    model.fit(*data, epochs=2, callbacks=[Evaluating(aps)])
    assert "AP 0.250  best AP 0.500 (epoch 1)" in capsys.readouterr().out


def test_a_training_that_early_stopping_ended_says_so_where_it_is_resumed(tmp_path):
    def new_callbacks():
        stopping = keras.callbacks.EarlyStopping("AP", mode="max", patience=1)
        archive = CheckpointArchive(tmp_path, verbose=False)
        best = keras.callbacks.ModelCheckpoint(
            tmp_path / "best.weights.h5",
            "AP",
            mode="max",
            save_best_only=True,
            save_weights_only=True,
        )
        return [archive, stopping, best, Evaluating([0.5, 0.25, 0.3, 0.4])]

    model, data = new_model(), batch(2)
    whole = model.fit(*data, epochs=4, verbose=0, callbacks=new_callbacks())
    assert whole.epoch == [0, 1]
    position = read_archive_info(tmp_path / "last.keras")["training_position"]
    assert position["is_stopped"]
    states = position["callback_states"]
    assert (states["EarlyStopping"]["wait"], states["EarlyStopping"]["best"]) == (
        1,
        0.5,
    )
    assert states["ModelCheckpoint"] == {"best": 0.5}
    best = (tmp_path / "best.weights.h5").read_bytes()
    rest = EfficientDet.from_archive(tmp_path, resume=True)
    with pytest.warns(
        UserWarning, match="stopped the training of this checkpoint"
    ) as warned:
        history = rest.fit(*data, epochs=4, verbose=0, callbacks=new_callbacks())
    assert [w for w in warned if "epoch 3, up to `epochs=4`" in str(w.message)]
    assert history.epoch == [2]  # no better than the best: it stops again
    assert (tmp_path / "best.weights.h5").read_bytes() == best
