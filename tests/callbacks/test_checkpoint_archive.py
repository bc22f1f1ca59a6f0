"""Which checkpoints are kept, through one training and the next."""

import os
import shutil
import warnings

import keras
import numpy as np
import pytest
from support.arrays import assert_equal
from support.tiny import EAGER, StandIn, batch, tiny_model, values

from effdet_keras._internal.folder_lock import KERNEL_FILE, LOCK_FILE
from effdet_keras.callbacks import CheckpointArchive, SwapEMA, checkpoint_archive
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.weights.archive import read_archive_info
from effdet_keras.weights.checkpoint_files import PREVIOUS_FILE

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def stand_in():
    return StandIn()


def epochs_in(folder):
    """The epoch that each file of a folder is from, but for the last but one."""
    return {
        path.stem: read_archive_info(path)["epoch"]
        for path in folder.glob("*.keras")
        if path.name != PREVIOUS_FILE
    }


def start(model, folder, steps_done=0, **arguments):
    callback = CheckpointArchive(folder, **arguments)
    callback.set_model(model)
    model.optimizer.iterations.assign(steps_done)
    callback.on_train_begin()
    return callback


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("mode", "values", "expected"),
    [
        ("max", [0.2, 0.5, 0.4], 2),
        ("max", [0.2, 0.2], 1),  # a tie keeps the first
        ("max", [0.0, -1.0], 1),
        ("min", [0.5, 0.3, 0.4], 2),
        ("max", [float("nan"), 0.1, float("nan")], 2),
    ],
)
def test_the_best_and_the_last_are_kept(stand_in, tmp_path, mode, values, expected):
    callback = start(stand_in, tmp_path, mode=mode)
    for epoch, value in enumerate(values):
        callback.on_epoch_end(epoch, {"AP": value})
    assert epochs_in(tmp_path) == {"best": expected, "last": len(values)}


def test_the_archive_holds_the_numbers_of_its_epoch(stand_in, tmp_path):
    callback = start(stand_in, tmp_path)
    callback.on_epoch_end(0, {"AP": np.float32(0.25), "loss": 2.0})
    info = read_archive_info(tmp_path / "best.keras")
    assert info["metrics"] == {"AP": 0.25, "loss": 2.0}
    assert (info["monitor"], info["mode"], info["epoch"]) == ("AP", "max", 1)
    assert info["evaluated_weights"] == "averages"
    assert info == read_archive_info(tmp_path / "last.keras")
    stand_in.averages = None
    callback.on_epoch_end(1, {"AP": 0.5})
    assert read_archive_info(tmp_path)["evaluated_weights"] == "live"


def test_epochs_without_the_number_write_the_last_only(stand_in, tmp_path):
    callback = start(stand_in, tmp_path)
    for epoch, logs in enumerate([{"loss": 1.0}, {"AP": 0.3}, {"loss": 1.0}, None]):
        callback.on_epoch_end(epoch, logs)
    assert epochs_in(tmp_path) == {"best": 2, "last": 4}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        callback.on_train_end()


def test_a_number_that_never_came_is_told(stand_in, tmp_path):
    callback = start(stand_in, tmp_path)
    callback.on_epoch_end(0, {"loss": 1.0})
    assert epochs_in(tmp_path) == {"last": 1}
    with pytest.warns(UserWarning, match=r"'AP' was not in the logs.*\['loss'\]"):
        callback.on_train_end()


def test_a_wrong_monitor_is_told_after_the_first_epoch(stand_in, tmp_path, capsys):
    callback = start(stand_in, tmp_path, monitor="mAP")
    callback.on_epoch_end(0, {"loss": 1.0, "AP": 0.5})
    message = "`monitor='mAP'` is not in the logs of epoch 1, which have ['AP', 'loss']"
    assert message in capsys.readouterr().out
    callback.on_epoch_end(1, {"loss": 1.0, "AP": 0.6})
    assert "mAP" not in capsys.readouterr().out


def test_nothing_is_said_of_the_monitor_before_the_first_evaluation(
    stand_in, tmp_path, capsys
):
    """The README's demo evaluates after its last epochs alone."""
    callback = start(stand_in, tmp_path)
    callback.on_epoch_end(0, {"loss": 1.0})
    assert capsys.readouterr().out == ""
    callback.on_epoch_end(1, {"loss": 1.0, "AP": 0.3})
    assert "is not in the logs" not in capsys.readouterr().out


def test_a_resumed_training_goes_on_from_the_best_in_the_folder(stand_in, tmp_path):
    start(stand_in, tmp_path).on_epoch_end(0, {"AP": 0.6})
    resumed = start(stand_in, tmp_path, steps_done=100)
    resumed.on_epoch_end(1, {"AP": 0.5})
    assert epochs_in(tmp_path) == {"best": 1, "last": 2}
    resumed.on_epoch_end(2, {"AP": 0.7})
    assert epochs_in(tmp_path) == {"best": 3, "last": 3}


def test_a_new_training_keeps_the_best_of_the_one_before(stand_in, tmp_path):
    start(stand_in, tmp_path).on_epoch_end(8, {"AP": 0.6})
    anew = start(stand_in, tmp_path)
    assert epochs_in(tmp_path)["best"] == 9
    for epoch, value in enumerate([0.1, 0.2]):
        anew.on_epoch_end(epoch, {"AP": value})
    assert epochs_in(tmp_path) == {"best": 2, "last": 2, "best.previous": 9}


def test_what_is_resumed_has_no_best_of_an_earlier_training(stand_in, tmp_path):
    start(stand_in, tmp_path).on_epoch_end(8, {"AP": 0.6})
    start(stand_in, tmp_path).on_epoch_end(0, {"loss": 1.0})  # stopped before an AP
    assert epochs_in(tmp_path) == {"last": 1, "best.previous": 9}
    resumed = start(stand_in, tmp_path, steps_done=100)
    assert resumed.best is None
    resumed.on_epoch_end(1, {"AP": 0.3})
    assert epochs_in(tmp_path) == {"best": 2, "last": 2, "best.previous": 9}


@pytest.mark.slow
def test_a_training_with_validation_on_averages_is_archived_and_restored(
    model, train, tmp_path
):
    averages = []

    def note(epoch, logs):
        averages.append(values(model.averages.sources))  # which hold the averages there

    noting = keras.callbacks.LambdaCallback(on_epoch_end=note)
    history = model.fit(
        *train,
        batch_size=2,
        epochs=2,
        verbose=0,
        validation_data=train,
        validation_batch_size=2,
        callbacks=[SwapEMA(), noting, CheckpointArchive(tmp_path, "val_loss", "min")],
    )
    info = read_archive_info(tmp_path)
    assert info["evaluated_weights"] == "averages"
    assert info["epoch"] == 1 + int(np.argmin(history.history["val_loss"]))
    assert {"loss", "val_loss", "class_loss"} <= set(info["metrics"])

    best = EfficientDet.from_archive(tmp_path)
    assert_equal(best.averages.sources, averages[info["epoch"] - 1])

    last = EfficientDet.from_archive(tmp_path, resume=True)
    assert_equal(last.variables, model.variables)
    assert_equal(last.averages.variables, model.averages.variables)
    assert_equal(last.optimizer.variables, model.optimizer.variables)


def test_another_training_cannot_write_into_the_folder(stand_in, tmp_path):
    callback = start(stand_in, tmp_path)
    with pytest.raises(RuntimeError, match="A training needs a folder of its own"):
        start(stand_in, tmp_path)
    callback.on_train_end()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_training_that_is_stopped_lets_the_folder_go(tmp_path, error):
    def stop(*_, **__):
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {KERNEL_FILE, LOCK_FILE}
        raise error

    model = tiny_model()
    model.compile("sgd", run_eagerly=EAGER)
    stopping = keras.callbacks.LambdaCallback(on_train_batch_end=stop)
    with pytest.raises(error):
        model.fit(
            *batch(), verbose=0, callbacks=[CheckpointArchive(tmp_path), stopping]
        )
    assert list(tmp_path.iterdir()) == []


def test_the_last_ones_stay(stand_in, tmp_path):
    callback = start(stand_in, tmp_path, keep=2)
    for epoch in range(4):
        stand_in.optimizer.iterations.assign(10 * epoch)
        callback.on_epoch_end(epoch, {})
    assert epochs_in(tmp_path) == {"last": 4, "step-00000020": 3, "step-00000030": 4}


@pytest.mark.parametrize(
    ("options", "jump", "expected"),
    [
        ({"keep_every_hours": 2}, 0, [0, 4, 8, 9]),
        ({"keep_every_hours": 1.5, "keep": 2}, 0, [0, 3, 6, 8, 9]),
        ({"keep_every_hours": 1.5}, -100, [0, 3, 4, 7, 9]),  # the clock is set back
    ],
    ids=str,
)
def test_of_older_ones_one_every_few_hours_stays(
    stand_in, tmp_path, monkeypatch, options, jump, expected
):
    def copy_at_its_time(source, target):
        shutil.copy(source, target)
        os.utime(target, (3600 * hour, 3600 * hour))

    monkeypatch.setattr(checkpoint_archive, "copy_archive", copy_at_its_time)
    callback = start(stand_in, tmp_path, **options)
    for epoch in range(10):
        hour = 1000 + epoch / 2 + (jump if epoch > 3 else 0)
        stand_in.optimizer.iterations.assign(epoch)
        callback.on_epoch_end(epoch, {})
    found = epochs_in(tmp_path)
    assert found.pop("last") == 10
    assert found == {f"step-{epoch:08d}": epoch + 1 for epoch in expected}


class Positions(keras.callbacks.Callback):
    """The steps at which the archive before it has written its last file."""

    def __init__(self, folder):
        super().__init__()
        self.path, self.steps = folder / "last.keras", []

    def on_train_batch_end(self, batch, logs=None):
        position = read_archive_info(self.path)["training_position"]
        self.steps.append((position["step"], position["total_steps"]))


def test_the_last_group_of_an_epoch_may_have_fewer_steps(tmp_path):
    """Keras counts it as a whole one: two groups of 2 for 3 steps."""
    model = tiny_model()
    sgd = keras.optimizers.SGD(1e-3)
    model.compile(sgd, ema_decay=None, run_eagerly=EAGER, steps_per_execution=2)
    archive = CheckpointArchive(tmp_path, None, verbose=False, save_every_steps=1)
    positions = Positions(tmp_path)
    model.fit(
        *batch(3), batch_size=1, epochs=2, verbose=0, callbacks=[archive, positions]
    )
    assert positions.steps == [(2, 2), (3, 3), (2, 5), (3, 6)]
    with pytest.warns(UserWarning, match="has 4 steps, not `steps_per_epoch=3`"):
        model.fit(
            *batch(1),
            batch_size=1,
            steps_per_epoch=3,
            initial_epoch=2,
            epochs=3,
            verbose=0,
            callbacks=[archive, positions],
        )
    assert positions.steps[4:] == [(2, 8), (4, 10)]
