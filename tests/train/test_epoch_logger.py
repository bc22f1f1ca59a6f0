"""One line per epoch in the place of Keras' progress bar."""

import pytest
from support.tiny import EAGER, batch, tiny_model

from effdet_keras.train.epoch_logger import EpochLogger


@pytest.mark.slow_elsewhere
@pytest.mark.parametrize("verbose", ["auto", 0, 1, 2])
def test_only_the_automatic_verbosity_prints_our_lines(verbose, capsys):
    model = tiny_model()
    model.compile("sgd", run_eagerly=EAGER)
    model.fit(*batch(), verbose=verbose)
    assert ("epoch 1/1  loss" in capsys.readouterr().out) is (verbose == "auto")


@pytest.fixture
def lines():
    callback = EpochLogger()
    callback.set_params({"epochs": 12, "steps": 3})
    callback.on_train_begin()
    return callback


def run_epoch(lines, epoch, **logs):
    lines.on_epoch_begin(epoch)
    for step in range(3):
        lines.on_train_batch_end(step, {"loss": 1.0})
    lines.on_epoch_end(epoch, logs)


def test_an_epoch_is_one_line_with_its_losses_and_no_other_number(lines, capsys):
    run_epoch(lines, 0, loss=0.53211, val_loss=0.61, class_loss=0.2, APs=0.1)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("epoch  1/12  loss 0.5321  val_loss 0.61  ")
    assert line.endswith(" s") and "class_loss" not in line and "APs" not in line


def test_the_best_ap_and_its_epoch_are_remembered(lines, capsys):
    for epoch, ap in enumerate([0.1, 0.3, 0.2]):
        run_epoch(lines, epoch, loss=1.0, AP=ap, AP50=2 * ap)
    run_epoch(lines, 3, loss=1.0)  # evaluated every few epochs only
    printed = capsys.readouterr().out.splitlines()
    assert "AP 0.300  AP50 0.600  best AP 0.300 (epoch 2)" in printed[1]
    assert "AP 0.200  AP50 0.400  best AP 0.300 (epoch 2)" in printed[2]
    assert "AP" not in printed[3]
