"""`fit(steps_per_epoch=...)` goes through the data as often as its steps need."""

import keras
import numpy as np
import pytest
from support.tiny import EAGER, Stream, batch, tiny_model

from effdet_keras.data import from_arrays
from effdet_keras.train import auto_recipe
from effdet_keras.train.repeat import repeat


class Counter(keras.callbacks.Callback):
    """Counts the steps of each epoch."""

    def __init__(self):
        super().__init__()
        self.steps = []

    def on_epoch_begin(self, epoch, logs=None):
        self.steps.append(0)

    def on_train_batch_end(self, batch, logs=None):
        self.steps[-1] += 1


def numbered(count):
    """Arrays whose images hold their own number."""
    images = np.arange(count, dtype="uint8").reshape(count, 1, 1, 1)
    return images, {"labels": np.arange(count)}


def drawn(data, count):
    """The numbers of the images in so many batches."""
    batches = [data[i] for i in range(count)]
    for images, truth in batches:
        np.testing.assert_array_equal(images.ravel(), truth["labels"])
    return [images.ravel().tolist() for images, _ in batches]


# What `fit` does.


@pytest.fixture(scope="module")
def model():
    model = tiny_model()
    model.compile(recipe="reference", run_eagerly=EAGER)
    return model


def trained(model, *data, **options):
    counter = Counter()
    model.compile(recipe="reference", run_eagerly=EAGER)
    model.fit(*data, epochs=3, callbacks=[counter], verbose=0, **options)
    return counter.steps, float(model.optimizer.learning_rate)


def test_arrays_are_repeated_and_the_schedule_comes_to_its_end(model):
    """Three batches, two steps per epoch: Keras itself ran 2, 1, 2 of six."""
    steps, rate = trained(model, *batch(3), batch_size=1, steps_per_epoch=2)
    assert steps == [2, 2, 2] and rate == 0.0


@pytest.mark.tensorflow
def test_a_dataset_is_repeated_and_the_schedule_comes_to_its_end(model):
    images, truth = batch(3, dtype="uint8")
    dataset = from_arrays(images, truth["boxes"], truth["labels"], model.class_names)
    steps, rate = trained(model, dataset, batch_size=1, steps_per_epoch=2)
    assert steps == [2, 2, 2] and rate == 0.0
    batches = model.batches(dataset, 1, training=True)
    assert trained(model, batches, steps_per_epoch=4) == ([4, 4, 4], 0.0)


def test_batches_of_a_pydataset_are_repeated(model):
    stream = Stream(*[batch(1)] * 3)
    assert trained(model, stream, steps_per_epoch=2) == ([2, 2, 2], 0.0)


@pytest.mark.extra_packages
def test_a_data_loader_of_torch_is_repeated(model):
    torch = pytest.importorskip("torch")
    images, truth = batch(3)
    pairs = [
        (image, {k: v[i] for k, v in truth.items()}) for i, image in enumerate(images)
    ]
    loader = torch.utils.data.DataLoader(pairs, batch_size=1)
    assert trained(model, loader, steps_per_epoch=2) == ([2, 2, 2], 0.0)


def test_a_validation_split_is_no_part_of_what_is_repeated(model):
    steps, rate = trained(
        model, *batch(4), batch_size=1, steps_per_epoch=2, validation_split=0.25
    )
    assert steps == [2, 2, 2] and rate == 0.0
    # And of a plain `fit`: the schedule is as long as the training on the rest.
    assert trained(model, *batch(4), batch_size=1, validation_split=0.5) == (
        [2, 2, 2],
        0.0,
    )


# In which order.


def test_each_pass_has_every_image_once_in_an_order_of_its_own():
    data, truth = repeat(*numbered(10), batch_size=4)
    assert truth is None and data.num_batches is None
    passes, found = [], drawn(data, 9)
    for start in (0, 3, 6):
        one = [number for part in found[start : start + 3] for number in part]
        assert sorted(one) == list(range(10))
        passes.append(one)
    assert passes[0] != passes[1] and passes[1] != passes[2]
    assert drawn(data, 9) == found  # whatever worker asks, in whatever order


def test_without_shuffling_arrays_keep_their_order():
    data, _ = repeat(*numbered(5), batch_size=2, shuffle=False)
    assert drawn(data, 4) == [[0, 1], [2, 3], [4], [0, 1]]


def test_batches_of_neighbours_stay_together():
    data, _ = repeat(*numbered(5), batch_size=2, shuffle="batch")
    found = drawn(data, 3)
    assert sorted(found) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("kind", ["arrays", "batches", "loader"])
def test_a_training_that_goes_on_begins_at_its_place(kind):
    images, truth = numbered(3)
    batches = [
        (images[i : i + 1], {"labels": truth["labels"][i : i + 1]}) for i in range(3)
    ]
    if kind == "arrays":
        data, _ = repeat(images, truth, batch_size=1, shuffle=False, first_step=4)
    elif kind == "batches":
        data, _ = repeat(Stream(*batches), shuffle=False, first_step=4)
    else:
        endless, _ = repeat(batches, first_step=4)
        data = [next(endless) for _ in range(4)]
    assert drawn(data, 4) == [[1], [2], [0], [1]]


@pytest.mark.tensorflow
def test_tf_data_of_others_begins_at_its_place():
    import tensorflow as tf

    data = tf.data.Dataset.range(3)
    found, _ = repeat(data, first_step=4)
    assert list(found.take(4).as_numpy_iterator()) == [1, 2, 0, 1]
    endless = data.repeat()
    assert repeat(endless, first_step=4)[0] is endless


def test_a_generator_stays_as_it_is():
    generator = (i for i in range(3))
    assert repeat(generator)[0] is generator


# How long `fit` trains where nobody says it.


def test_epochs_and_augmentation_count_passes_over_the_data():
    assert auto_recipe.num_epochs(80, 8) == 140
    assert auto_recipe.num_epochs(80, 8, steps_per_epoch=100) == 14
    whole = {"epochs": 60, "steps_per_epoch": None}
    assert auto_recipe.passes_over_data(80, 8, **whole) == 60
    longer = {"epochs": 6, "steps_per_epoch": 100}
    assert auto_recipe.passes_over_data(80, 8, **longer) == 60
    assert auto_recipe.passes_over_data(80, 8, epochs=1, steps_per_epoch=2) == 1
