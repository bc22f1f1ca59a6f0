"""Batches in NumPy are those of `tf.data`: images, boxes, keys, order, reports."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import effdet_keras as ek
from effdet_keras._internal import optional_imports
from effdet_keras._internal.philox import Stream, fold_in
from effdet_keras.augment import FromNumPy, Mosaic, RandomApply, Rotate, random_ops
from effdet_keras.data import from_arrays
from effdet_keras.data.pipeline import batches as tf_batches
from effdet_keras.data.pipeline import numpy_batches, numpy_transforms, transforms
from effdet_keras.data.pipeline.image_reader import find_image_readers
from effdet_keras.train.data_order import DataOrder

pytestmark = pytest.mark.tensorflow

SIZE = 9
SEEDS = [(0, 3), (7, 0), (2**61 + 5, 118_000), (-3, 12)]


@pytest.fixture
def without_tensorflow(monkeypatch):
    """Batches that are made in it are made as where TensorFlow is not installed."""
    original = optional_imports.OptionalModule.is_installed
    monkeypatch.setattr(
        optional_imports.OptionalModule,
        "is_installed",
        lambda self: self._name != "tensorflow" and original(self),
    )


def examples(count, seed=0):
    """Images of many sizes, with up to four boxes each."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        sides, number = rng.integers(20, 120, 2), rng.integers(0, 5)
        low = rng.uniform(0, sides - 2, (number, 2))
        high = np.minimum(low + rng.uniform(2, 60, (number, 2)), sides)
        yield {
            "image": rng.integers(0, 256, (*sides, 3), "uint8"),
            "boxes": np.concatenate([low, high], axis=1).astype("float32"),
            "labels": np.arange(number, dtype="int32"),
            "mask": rng.integers(0, 5, tuple(sides), "uint8"),
        }


def dataset_of(size=SIZE):
    parts = list(examples(size))
    images, boxes, labels = (
        [part[key] for part in parts] for key in ("image", "boxes", "labels")
    )
    return from_arrays(images, boxes, labels, ("a", "b", "c", "d"))


# --- The random numbers of TensorFlow.


@pytest.mark.parametrize("seed", SEEDS)
def test_the_numbers_of_a_seed_are_those_of_tensorflow(seed):
    of_tf, stream = tf.constant(seed, tf.int64), Stream.scrambled(seed)

    def drawn(shape, *bounds, dtype=tf.float32):
        options = {"dtype": dtype, "alg": "philox"}
        return tf.random.stateless_uniform(shape, of_tf, *bounds, **options)

    np.testing.assert_array_equal(stream.uniform((3, 2)), drawn([3, 2]))
    np.testing.assert_array_equal(
        stream.uniform_float64(3), drawn([3], dtype=tf.float64)
    )
    np.testing.assert_array_equal(
        stream.integers_below(1, 37, 5), drawn([5], 1, 37, dtype=tf.int64)
    )
    np.testing.assert_array_equal(
        fold_in(seed, 2), tf.random.fold_in(of_tf, 2, alg="philox")
    )
    np.testing.assert_array_equal(
        Stream(seed).uniform((5, 3)), random_ops.uniform(of_tf, [5, 3])
    )
    np.testing.assert_array_equal(Stream(seed).split(3), random_ops.split(of_tf, 3))


# --- Geometry.


@pytest.mark.parametrize("resize_method", ["half_pixel", "asymmetric"])
@pytest.mark.parametrize("target_size", [None, (80, 64)])
def test_flip_jitter_and_letterbox_are_those_of_tensorflow(resize_method, target_size):
    window = transforms.Window((64, 90), (9.0, 8.0, 7.0), resize_method, target_size)
    for index, example in enumerate(examples(12)):
        seed = (5, index)
        draws = numpy_transforms.random_draws(seed, (0.1, 2.0))
        of_tf = transforms.random_draws(tf.constant(seed, tf.int64), (0.1, 2.0))
        assert [float(x) for x in draws] == [float(x) for x in of_tf]
        for change in (
            lambda module, x, draws=draws: module.scale_jitter(x, draws, window),
            lambda module, x: module.letterbox(x, window),
            lambda module, x: module.letterbox(module.flip(x), window),
        ):
            assert_same(change(numpy_transforms, example), change(transforms, example))


def assert_same(found, expected, *, rounding=1e-4):
    assert found.keys() == expected.keys()
    for key in ("labels", "boxes", "image"):
        given, wanted = np.asarray(found[key]), np.asarray(expected[key])
        assert (given.dtype, given.shape) == (wanted.dtype, wanted.shape), key
        atol = rounding if key == "image" else 1e-3
        np.testing.assert_allclose(
            given.astype("float32"), wanted.astype("float32"), atol=atol
        )
    # A pixel whose middle is between two takes the one or the other.
    differ = np.asarray(found["mask"]) != np.asarray(expected["mask"])
    assert differ.mean() < 0.04


def halved(image, boxes, labels, rng):
    return image // 2 + rng.integers(0, 9, image.shape, "uint8"), boxes, labels


@pytest.mark.parametrize(
    "augmentation",
    [Mosaic(), RandomApply(Mosaic(), 0.5), RandomApply([Mosaic()], 0.9)],
    ids=repr,
)
def test_mosaics_are_those_of_tensorflow(augmentation):
    pictures = examples(24)
    for index in range(6):
        four, seed = list(itertools.islice(pictures, 4)), (index, 2**40 - index)
        expected = augmentation(four, tf.constant(seed, tf.int64))
        # A float that is rounded to a pixel may lie at its edge.
        assert_same(augmentation.call_arrays(four, seed), expected, rounding=1.01)


# --- Whole batches.

OPTIONS = {
    "training": {"training": True},
    "in order": {},
    "a last one of one": {"training": True, "drop_remainder": False},
    "a share": {"training": True, "share": (1, 2)},
    "mosaics": {"training": True, "augment": RandomApply(Mosaic(), 0.5)},
    "of NumPy": {
        "training": True,
        "augment": [Mosaic(), FromNumPy(halved)],
        "max_boxes": 30,
    },
}
CHANGES = {
    "as it is": lambda data: data,
    "a part, twice": lambda data: data.take(2).repeat(2),
}


@pytest.mark.smoke
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("steps_are_compiled", [False, True])
def test_batches_are_those_of_tf_data(
    name, steps_are_compiled, monkeypatch, without_tensorflow
):
    monkeypatch.setattr(tf_batches, "default_jit_compile", lambda: steps_are_compiled)
    options = {"image_size": (64, 80), "seed": 3, **OPTIONS[name]}
    in_numpy = dataset_of().batches(4, **options)
    monkeypatch.undo()
    monkeypatch.setattr(tf_batches, "default_jit_compile", lambda: steps_are_compiled)
    in_tf = dataset_of().batches(4, **options)
    assert isinstance(in_numpy, numpy_batches.NumPyBatches)
    assert isinstance(in_tf, tf.data.Dataset)
    assert in_numpy.cardinality() == int(in_tf.cardinality()) == len(in_numpy)
    for change in CHANGES.values():
        pairs = itertools.zip_longest(change(in_numpy), change(in_tf))
        for (images, truth), (tf_images, tf_truth) in pairs:
            assert images.dtype == tf_images.dtype.as_numpy_dtype
            atol = 1.01 if "augment" in options else 1e-4
            np.testing.assert_allclose(images, tf_images, atol=atol)
            assert truth.keys() == tf_truth.keys()
            for key, value in tf_truth.items():
                assert truth[key].dtype == value.dtype.as_numpy_dtype
                np.testing.assert_allclose(truth[key], value, atol=1e-3)


def test_partners_of_balanced_images_are_drawn_by_their_factors():
    factors = np.float64([1, 1, 8, 1])
    drawn = [numpy_batches.partners(0, (5, i), 3, 4, factors) for i in range(200)]
    counts = np.bincount(np.ravel(drawn), minlength=4)
    assert counts[0] == 0 and counts[2] == pytest.approx(600 * 8 / 11, rel=0.1)
    assert numpy_batches.partners(0, (5, 0), 3, 1).tolist() == [0, 0, 0]


# --- The order, as Keras asks for it: by places, from the start that `fit` names.


def batches_of(**options):
    options = {"image_size": 16, "training": True, "seed": 1, **options}
    return dataset_of().batches(2, **options)


def ids(truth):
    return truth["image_id"].tolist()


@pytest.mark.parametrize("steps", [None, 3])
@pytest.mark.parametrize(("epoch", "step"), [(0, 0), (1, 0), (2, 1)])
def test_a_training_that_goes_on_sees_what_it_would_have_seen(
    epoch, step, steps, without_tensorflow
):
    def trained(first, step):
        data = batches_of() if steps is None else batches_of().repeat()
        order, found, index = DataOrder(data, steps, first), [], 0
        for epoch in range(first, 4):
            assert order.start(epoch, step if epoch == first else 0)
            if steps is None:  # Keras begins again
                index = 0
            count = (steps or len(data)) - (step if epoch == first else 0)
            for _ in range(count):
                found.append(ids(data[index][1]))
                index += 1
            data.on_epoch_end()
        return found

    whole = trained(0, 0)
    assert trained(epoch, step) == whole[epoch * (steps or 4) + step :]
    assert len(whole) == 4 * (steps or 4) and len({str(x) for x in whole}) > 8


def test_each_iteration_has_an_order_of_its_own(without_tensorflow):
    data = batches_of()
    first, second = ([ids(truth) for _, truth in data] for _ in range(2))
    assert first != second and len(first) == len(second) == 4
    next(iter(find_image_readers(data))).order.start_at(1)
    assert [ids(data[place][1]) for place in (3, 0, 1, 2)] == [
        second[place] for place in (3, 0, 1, 2)
    ]
    with pytest.raises(TypeError, match="infinite"):
        len(data.repeat())
    assert data.repeat().num_batches is None and data.repeat().cardinality() == -1


def test_images_that_cannot_be_read_are_reported_once_per_pass(
    tmp_path, capsys, without_tensorflow
):
    train, _ = ek.data.write_shapes(tmp_path, num_train=4, num_valid=1, image_size=32)
    broken, good = (train[i]["path"] for i in (1, 2))
    with open(broken, "wb") as file:
        file.write(b"no image")
    assert Image.open(good).size == (32, 32)
    for training, words in ((True, "replaced by other"), (False, "counted as empty")):
        batches = train.batches(2, image_size=32, training=training, seed=0)
        for count in (1, 2):
            scales = [scale for _, truth in batches for scale in truth["image_scale"]]
            assert training or (np.array(scales) == 0).sum() == 1
            assert capsys.readouterr().err.count(words) == 1, count


# --- What needs TensorFlow says so.


def user_function(example, seed):
    return example


@pytest.mark.parametrize(
    "augment",
    [Rotate(), user_function, [Mosaic(), Rotate()]],
    ids=["ours", "a function", "one of several"],
)
def test_other_augmentations_name_the_cure(augment, monkeypatch, without_tensorflow):
    monkeypatch.setitem(__import__("sys").modules, "tensorflow", None)
    with pytest.raises(ek.errors.MissingPackageError) as caught:
        batches_of(augment=augment)
    text = str(caught.value)
    assert "like all but `Mosaic`, `FromNumPy` and `RandomApply`" in text
    assert text.endswith('needs tensorflow: pip install "tensorflow"')


def out_of_range(image, boxes, labels, rng):
    return image, boxes, labels + 9


def failing(image, boxes, labels, rng):
    raise RuntimeError("no luck")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (out_of_range, "returned the label 9; labels"),
        (failing, "RuntimeError: no luck"),
    ],
)
def test_faults_of_functions_of_users_are_named(function, words, without_tensorflow):
    batches = batches_of(augment=FromNumPy(function), shuffle=False)
    with pytest.raises(ek.errors.InvalidValueError, match=words):
        list(batches)
    reader = next(iter(find_image_readers(batches)))
    assert words in str(reader.error)
