"""Ctrl-C and SIGTERM: what waits, what acts at once, and what is put back."""

import signal

import keras
import pytest
from support.tiny import EAGER, Stream, batch, tiny_model

from effdet_keras.callbacks import CheckpointArchive
from effdet_keras.callbacks.checkpoint_archive import StopSignals
from effdet_keras.weights.archive import read_archive_info

BOTH = (signal.SIGINT, signal.SIGTERM)
STEPS = 3


@pytest.fixture(autouse=True)
def handlers():
    """The handlers of a program that has none of its own, before and after."""
    before = [signal.getsignal(number) for number in BOTH]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in zip(BOTH, before):
        signal.signal(number, handler)


@pytest.fixture
def signals(handlers):
    signals = StopSignals()
    signals.listen()
    yield signals
    signals.stop_listening()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_without_a_hold_a_signal_acts_at_once(signals):
    with pytest.raises(SystemExit) as error:
        signal.raise_signal(signal.SIGTERM)
    assert error.value.code == 143 and signals.received == signal.SIGTERM


def test_a_hold_lasts_until_the_release(signals):
    signals.hold()
    for _ in range(3):  # schedulers send it more than once
        signal.raise_signal(signal.SIGTERM)
    assert signals.received == signal.SIGTERM
    with pytest.raises(SystemExit):
        signals.release()
    assert not signals.is_at_once


@pytest.mark.parametrize("first", BOTH)
def test_a_second_control_c_does_not_wait(signals, first):
    signals.hold()
    signal.raise_signal(first)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert signals.is_at_once


def test_a_handler_of_the_program_is_called_and_put_back():
    heard = []

    def handler(number, frame):
        heard.append(number)

    signal.signal(signal.SIGTERM, handler)
    signals = StopSignals()
    signals.listen()
    signals.hold()
    signal.raise_signal(signal.SIGTERM)
    assert heard == []
    signals.release()
    assert heard == [signal.SIGTERM] and signals.received is None
    signals.stop_listening()
    assert signal.getsignal(signal.SIGTERM) is handler


def test_what_is_ignored_stays_ignored():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as of `nohup command &`
    signals = StopSignals()
    signals.listen()
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    signals.stop_listening()


class Sender(keras.callbacks.Callback):
    """Sends a signal to its own process: in a step, or behind those of an epoch."""

    def __init__(self, number, step=None):
        super().__init__()
        self._number, self._step = number, step

    def on_train_batch_end(self, batch, logs=None):
        if batch == self._step:
            signal.raise_signal(self._number)

    def on_epoch_end(self, epoch, logs=None):
        if self._step is None:
            signal.raise_signal(self._number)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("sender", "error", "step"),
    [
        pytest.param(
            Sender(signal.SIGINT, step=1), KeyboardInterrupt, 2, marks=pytest.mark.slow
        ),
        (Sender(signal.SIGTERM), SystemExit, STEPS),
    ],
)
def test_a_training_is_saved_before_it_stops(sender, error, step, tmp_path, capsys):
    model = tiny_model()
    model.compile("momentum", run_eagerly=EAGER)
    counted = keras.callbacks.EarlyStopping("loss", mode="min")
    archive = CheckpointArchive(tmp_path, "loss", "min", verbose=False)
    with pytest.raises(error):
        model.fit(
            Stream(*[batch()] * STEPS),
            epochs=2,
            verbose=0,
            callbacks=[counted, sender, archive],
        )
    position = read_archive_info(tmp_path / "last.keras")["training_position"]
    assert (position["epoch"], position["step"]) == (0, step)
    assert position["total_steps"] == step
    # The epoch is not counted: its end comes again.
    assert "best" not in position["callback_states"]["EarlyStopping"]
    name = "SIGINT" if error is KeyboardInterrupt else "SIGTERM"
    assert f"{name}: a checkpoint was written to" in capsys.readouterr().out
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert not list(tmp_path.glob(".*"))  # nor is the folder in use
