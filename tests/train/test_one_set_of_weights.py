"""Outside the training step the model has one set of weights: the averages."""

import functools

import keras
import numpy as np
import pytest
from keras import ops
from support.arrays import assert_equal
from support.kinds import slow_but
from support.tiny import (
    EAGER,
    LITE0,
    batch,
    lively_model,
    tiny_model,
    values,
    without_stochastic_depth,
)

from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.weights.archive import write_archive
from effdet_keras.weights.kinds.registry import open_weights

FILES = ["model.keras", "model.weights.h5"]
STOPS = [KeyboardInterrupt, RuntimeError]


def compiled_model():
    keras.utils.set_random_seed(1)
    model = without_stochastic_depth(lively_model())
    # Of the reference, because `fit` would choose a loss, and single steps do not.
    options = {"recipe": "reference", "ema_decay": 0.5, "run_eagerly": EAGER}
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), **options)
    return model


@pytest.fixture(scope="module")
def shared():
    """Two models, compiled once, and the weights that they start from."""
    models = compiled_model(), compiled_model()
    return models, models[0].get_weights()


@pytest.fixture
def both(shared):
    """Two equal models that were never trained."""
    models, start = shared
    for model in models:
        model.set_weights(start)
        for variable in model.optimizer.variables:
            if "learning_rate" not in variable.path:
                variable.assign(ops.zeros(variable.shape, variable.dtype))
        model.stop_training = False
    return models


@pytest.fixture
def model(both):
    return both[0]


@pytest.fixture
def trained(model):
    fit(model)
    return model


def fit(model, **arguments):
    options = {"batch_size": 2, "shuffle": False, "verbose": 0, **arguments}
    return model.fit(*batch(4), **options)


def both_sets(model):
    """The weights of training and the averages; the model is left as it was."""
    was_swapped = model.averages.is_swapped
    model.averages.swap_out()
    sets = values(model.weights), model.averages.values
    if was_swapped:
        model.averages.swap_in()
    return sets


def assert_differ(first, second):
    assert any((a != b).any() for a, b in zip(first, second, strict=True))


def assert_same_sets(model, expected):
    for ours, theirs in zip(both_sets(model), expected, strict=True):
        assert_equal(ours, theirs)


def predicted(model):
    return list(model.predict(batch()[0], batch_size=2, verbose=0).values())


def outputs(model):
    """What the network gives, without the time to compile `predict`."""
    return values(model(batch()[0][:1]).values())


def test_after_fit_the_weights_are_the_averages_and_training_goes_on_from_its_own(both):
    model, other = both
    fit(model, epochs=2)
    training, averages = both_sets(model)
    assert_differ(values(model.averages.sources), model.averages.values)
    assert model.averages.is_swapped
    assert_equal(model.averages.sources, averages)

    fit(other)
    predicted(other)
    other.evaluate(*batch(4), batch_size=2, verbose=0)
    fit(other, epochs=2, initial_epoch=1)
    assert_same_sets(other, (training, averages))


def test_callbacks_see_the_averages_but_between_the_steps(model):
    outside = ("on_test_begin", "on_test_batch_end", "on_epoch_end", "on_train_end")
    between = ("on_epoch_begin", "on_train_batch_end")
    seen, recorder = {}, keras.callbacks.Callback()

    def note(call, *_, **__):
        seen.setdefault(call, set()).add(model.averages.is_swapped)

    for call in (*outside, *between):
        setattr(recorder, call, functools.partial(note, call))
    options = {"validation_data": batch(4), "validation_batch_size": 2}
    history = fit(model, epochs=2, callbacks=[recorder], **options).history
    assert seen == {call: {call in outside} for call in (*outside, *between)}
    logs = model.evaluate(*batch(4), batch_size=2, verbose=0, return_dict=True)
    assert history["val_loss"][-1] == pytest.approx(float(logs["loss"]), rel=1e-5)


@pytest.mark.slow
def test_early_stopping_leaves_the_model_whose_ap_was_best(model):
    detections, losses = [], []

    def state():
        loss = model.evaluate(*batch(4), batch_size=2, verbose=0)
        return predicted(model), loss

    def evaluate(epoch, logs):
        logs["AP"] = [0.1, 0.9, 0.2, 0.3][epoch]
        found, loss = state()
        detections.append(found)
        losses.append(loss)

    evaluation = keras.callbacks.LambdaCallback(on_epoch_end=evaluate)
    stop = keras.callbacks.EarlyStopping(
        monitor="AP", mode="max", patience=2, restore_best_weights=True
    )
    fit(model, epochs=9, callbacks=[evaluation, stop])
    assert len(losses) == 4
    assert_differ(detections[1], detections[3])
    found, loss = state()
    assert_equal(found, detections[1])
    np.testing.assert_array_equal(loss, losses[1])
    # The next training starts from these weights, and so do its averages.
    training, averages = both_sets(model)
    assert_equal(training, model.get_weights())
    assert_equal(model.averages.sources, averages)


@pytest.mark.slow_elsewhere
def test_a_weight_that_is_assigned_after_fit_trains_on_from_its_new_value(trained):
    model = trained
    training, _ = both_sets(model)
    bias = next(v for v in model.weights if v.path.endswith("predict/bias"))
    bias.assign(ops.ones(bias.shape) * -3.0)
    after, _ = both_sets(model)
    for variable, old, new in zip(model.weights, training, after, strict=True):
        expected = np.full_like(old, -3.0) if variable is bias else old
        np.testing.assert_array_equal(new, expected, err_msg=variable.path)


@pytest.mark.slow_elsewhere
@pytest.mark.parametrize("error", slow_but([KeyboardInterrupt], STOPS))
def test_an_interrupted_fit_leaves_the_model_as_one_that_ends(both, error):
    def interrupt(batch, logs=None):
        if batch == 1:
            raise error

    model, other = both
    callback = keras.callbacks.LambdaCallback(on_train_batch_begin=interrupt)
    with pytest.raises(error):
        fit(model, callbacks=[callback])
    assert model.averages.is_swapped
    fit(other, steps_per_epoch=1)
    if keras.backend.backend() != "jax":  # whose state stays with the epoch
        assert_same_sets(model, both_sets(other))
    assert_equal(model.averages.sources, both_sets(model)[1])
    fit(model)


@pytest.mark.slow_elsewhere
@pytest.mark.parametrize("name", slow_but(["model.keras"], FILES))
def test_what_is_saved_after_fit_detects_alike_and_trains_on(tmp_path, both, name):
    model, other = both
    path = tmp_path / name
    is_whole = name.endswith(".keras")
    # As `save` and `save_weights` write it.
    save = keras.callbacks.ModelCheckpoint(path, save_weights_only=not is_whole)
    fit(model, callbacks=[save])
    if is_whole:
        other = keras.saving.load_model(path)
    else:
        fit(other, steps_per_epoch=1)
        other.load_weights(path)
        plain = tiny_model()
        plain.load_weights(path)
        assert_equal(outputs(plain), outputs(model))
    assert_equal(outputs(other), outputs(model))
    assert_same_sets(other, both_sets(model))


@pytest.mark.slow
@pytest.mark.slow_elsewhere
def test_an_archive_is_resumed_from_the_weights_of_training(tmp_path, trained):
    model = trained
    write_archive(model, tmp_path / "a.keras")
    resumed = EfficientDet.from_archive(tmp_path / "a.keras", resume=True)
    assert_equal(outputs(resumed), outputs(model))
    assert_same_sets(resumed, both_sets(model))
    evaluated = EfficientDet.from_archive(tmp_path / "a.keras")
    assert_equal(outputs(evaluated), outputs(model))
    assert_equal(evaluated.weights, both_sets(evaluated)[0])


@pytest.mark.slow_elsewhere
@pytest.mark.slow
def test_a_checkpoint_has_both_sets_right_after_fit(tmp_path):
    model = tiny_model(backbone=LITE0)
    model.compile(ema_decay=0.5, run_eagerly=EAGER)
    fit(model)
    training, averages = both_sets(model)
    model.export_checkpoint(tmp_path / "model.safetensors", format="torch-effdet")
    other = tiny_model(backbone=LITE0)
    other.load_pretrained(tmp_path / "model.safetensors", verbose=0)
    assert_equal(other.get_weights(), model.get_weights())
    path = tmp_path / "model.weights.h5"
    model.save_weights(path)
    for use_averages, expected in ((True, model.get_weights()), (False, training)):
        other = tiny_model(backbone=LITE0)
        other.load_pretrained(path, averages=use_averages, verbose=0)
        assert_equal(other.get_weights(), expected)
    assert open_weights(path, averages=True).num_averages == len(averages)


@pytest.mark.slow
@pytest.mark.slow_elsewhere
def test_single_steps_leave_the_averages_in_place_and_train_as_fit_does(both):
    model, other = both
    images, truth = batch(2)
    for _ in range(2):
        model.train_on_batch(images, truth)
        assert model.averages.is_swapped
    other.fit(images, truth, batch_size=2, epochs=2, shuffle=False, verbose=0)
    assert_same_sets(model, both_sets(other))


@pytest.mark.slow_elsewhere
@pytest.mark.parametrize("name", slow_but(["model.keras"], FILES))
def test_weights_that_are_no_numbers_are_told_when_they_are_loaded(tmp_path, name):
    model = tiny_model(backbone=LITE0)
    kernel = model.trainable_variables[0]
    kernel.assign(np.full(kernel.shape, np.nan))
    path = tmp_path / name
    model.save(path) if name.endswith(".keras") else model.save_weights(path)
    with pytest.warns(UserWarning, match=f"{name}' finds nothing: 1 of its"):
        if name.endswith(".keras"):
            EfficientDet.from_archive(path)
        else:
            tiny_model(backbone=LITE0).load_weights(path)
    with pytest.warns(UserWarning, match=f"{name}' finds nothing"):
        tiny_model(backbone=LITE0).load_pretrained(path, verbose=0)
