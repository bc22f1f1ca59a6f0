"""Norms of gradients, and the images of training steps, for TensorBoard."""

import types

import keras
import numpy as np
import pytest
from support.tiny import EAGER, Stream, batch, tiny_model

from effdet_keras.extras.step_summary import GradientSummary, InputSummary
from effdet_keras.runs.configuration import RunConfiguration

pytest.importorskip("tensorflow")
pytest.importorskip("tensorboard")


def compiled(**options):
    model = tiny_model()
    sgd = keras.optimizers.SGD(1e-3)
    model.compile(sgd, ema_decay=None, run_eagerly=EAGER, **options)
    return model


def steps_in(folder, tag):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    tags = [name for name in events.Tags()["tensors"] if name.startswith(tag)]
    return {name: [event.step for event in events.Tensors(name)] for name in tags}


@pytest.mark.slow_elsewhere
def test_the_norms_of_all_variables_are_those_that_fit_logs_together(tmp_path):
    model = compiled(clip_norm=None)
    summary = GradientSummary(tmp_path, every=2)
    logs = model.fit(*batch(4), batch_size=1, verbose=0, callbacks=[summary]).history
    norms = summary.norms
    assert list(norms) == [variable.path for variable in model.trainable_variables]
    together = np.sqrt(sum(norm**2.0 for norm in norms.values()))
    # The last of four steps is a second one, and the one whose norm the epoch logs.
    assert together == pytest.approx(logs["gradient_norm"][-1], rel=1e-4)
    written = steps_in(tmp_path, "gradient_norm/")
    assert set(written) == {f"gradient_norm/{path}" for path in norms}
    assert all(steps == [2, 4] for steps in written.values())
    assert not model.step_observers  # later steps do without


def test_a_step_leaves_what_an_observer_notes():
    """It assigns again what the forward pass did, and so not what comes after it."""
    model = tiny_model()
    model.compile("sgd", run_eagerly=EAGER)
    observer = types.SimpleNamespace(variables=[keras.Variable(0.0)])
    model.add_step_observer(observer)
    noted = {id(v) for v in [*model.averages.variables, *observer.variables]}
    assert not noted & {id(v) for v in model.step_variables()}


def test_norms_are_those_before_clipping(tmp_path):
    model = compiled(clip_norm=1e-3)
    summary = GradientSummary(tmp_path, every=1)
    logs = model.fit(*batch(1), verbose=0, callbacks=[summary]).history
    assert logs["gradient_norm"][-1] == pytest.approx(1e-3, rel=1e-4)
    assert max(summary.norms.values()) > 1e-2


@pytest.mark.slow_elsewhere
def test_the_images_are_those_of_the_step_with_their_boxes(tmp_path):
    model = compiled()
    images, truth = batch(6, padding=2)
    images = np.zeros_like(images) + 10.0 * np.arange(6)[:, None, None, None]
    rows = [slice(0, 2), slice(2, 5), slice(5, 6)]
    stream = Stream(
        *[(images[r], {name: x[r] for name, x in truth.items()}) for r in rows]
    )
    summary = InputSummary(tmp_path, every=1, num_images=2)
    seen = []
    noting = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(summary.images)
    )
    model.fit(stream, shuffle=False, verbose=0, callbacks=[summary, noting])
    # Two of three images, and one of one: the corner is outside of the box.
    shades = [[int(image[-1, -1, 0]) for image in found] for found in seen]
    assert shades == [[0, 10], [20, 30], [50]]
    assert all(len(np.unique(image)) > 1 for found in seen for image in found)
    assert steps_in(tmp_path, "input/") == {"input/0": [1, 2, 3], "input/1": [1, 2]}
    assert not model.step_observers


@pytest.mark.slow_elsewhere
def test_an_error_in_fit_leaves_no_observer_behind(tmp_path):
    model = compiled()
    with pytest.raises(ValueError, match="`num_classes`, 3"):
        wrong = Stream(batch(label=7))
        model.fit(wrong, verbose=0, callbacks=[InputSummary(tmp_path)])
    assert not model.step_observers


def test_a_file_stands_in_the_way_before_training(tmp_path):
    (tmp_path / "logs").write_text("a file")
    model = compiled()
    with pytest.raises(OSError, match="logs"):
        model.fit(*batch(), verbose=0, callbacks=[GradientSummary(tmp_path / "logs")])


@pytest.mark.parametrize(
    "make", [lambda: GradientSummary("x", 0), lambda: InputSummary("x", num_images=0)]
)
def test_numbers_that_cannot_be_right_are_refused(make):
    with pytest.raises(ValueError, match="1 or more"):
        make()


def test_a_run_without_tensorboard_has_no_summaries():
    with pytest.raises(ValueError, match="leave `tensorboard=False` out, or"):
        RunConfiguration(tensorboard=False, gradient_summary_every=10)
