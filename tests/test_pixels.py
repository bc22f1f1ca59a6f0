"""Arrays that are no pixels 0-255 are told, wherever images go in."""

import warnings

import keras
import numpy as np
import pytest
from support.tiny import EAGER, batch, tiny_model

import effdet_keras as ek
from effdet_keras.images import check_pixels, fault_of_pixels

RNG = np.random.default_rng(0)
SHARES = RNG.random((64, 64, 3))  # an image as fractions
IMAGE = (SHARES * 255).astype("uint8")
NAN = np.where(SHARES > 0.99, np.nan, SHARES * 255)
WRONG = {
    "fractions": (
        SHARES.astype("float32"),
        "which the network sees as black.*Multiply",
    ),
    "normalized": (SHARES.astype("float32") * 2 - 1, "-1 to 1, as if .*normalized"),
    "ImageNet": ((SHARES - 0.45) / 0.225, "normalized"),
    "NaN": (NAN, "NaN or infinite"),
    "infinite": (np.where(np.isnan(NAN), np.inf, NAN), "NaN or infinite"),
    "16 bits": ((SHARES * 65535).astype("uint16"), r"uint16\) from .*Scale it"),
    "floats of 16 bits": ((SHARES * 65535).astype("float32"), "Scale it"),
    "signed": ((SHARES * 255 - 128).astype("int16"), r"int16\) from -12"),
}
CERTAIN = ("NaN", "infinite", "16 bits", "floats of 16 bits", "signed")


def told(kind):
    """The context in which what is wrong must be told, as an error or a warning."""
    _, message = WRONG[kind]
    if kind in CERTAIN:
        return pytest.raises(ValueError, match=f"from 0 to 255.*{message}")
    return pytest.warns(UserWarning, match=f"from 0 to 255.*{message}")


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_no_image_is_told_with_its_range_and_the_cure(kind):
    with told(kind):
        check_pixels(WRONG[kind][0])


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((8, 8, 3), "uint8"),
        np.ones((8, 8, 3), "uint8"),
        np.zeros((8, 8, 3), "float32"),
        np.full((8, 8, 3), 1.0),  # nearly black
        (SHARES > 0.5).astype("float32"),  # noise of a black image
        np.full((8, 8, 3), 255, "uint16"),
        SHARES * 3,  # dark
        SHARES * 270 - 10,  # as bicubic resizing leaves edges
        np.zeros((0, 8, 8, 3), "float32"),
        IMAGE.astype("float16"),
        IMAGE.astype("int64"),
    ],
    ids=lambda image: f"{image.dtype} {image.max(initial=0):.3g}",
)
def test_dark_images_and_those_of_other_dtypes_are_images(image):
    assert fault_of_pixels(image) is None


def test_masks_in_place_of_images_are_told(model):
    with pytest.warns(UserWarning, match=r"an image \(bool\), which .* as black"):
        check_pixels(SHARES > 0.5)
    assert fault_of_pixels(np.zeros((8, 8, 3), bool)) is None
    with pytest.raises(TypeError, match="array of pixels from 0 to 255.*bool"):
        model.detect(SHARES > 0.5, verbose=0)


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.mark.parametrize("kind", WRONG)
def test_detect_tells_it_for_each_image(kind, model):
    with told(kind):
        model.detect([IMAGE, WRONG[kind][0]], verbose=0)
    with warnings.catch_warnings(action="error", category=UserWarning):
        model.detect([IMAGE, np.zeros_like(IMAGE)], verbose=0)


@pytest.mark.parametrize("kind", ["fractions", "NaN"])
def test_tiles_and_augmented_views_tell_it_too(kind, model):
    with told(kind):
        ek.Predictor(model).detect(WRONG[kind][0], tiles=64, augment=True)


@pytest.mark.parametrize("kind", ["fractions", "NaN", "16 bits"])
def test_batches_of_the_input_size_are_looked_at(kind, model):
    images = np.tile(WRONG[kind][0], (2, 1, 1, 1))
    for call in (model.predict, model.predict_on_batch):
        with told(kind):
            call(images)
    with told(kind):
        ek.Predictor(model).predict_on_batch(images)


def told_by_fit(kind):
    if kind == "NaN":  # by the step, which can name the images
        return pytest.raises(FloatingPointError, match="pixels that are not finite")
    return told(kind)


def wrong_batch(kind):
    images, truth = batch(4)
    if WRONG[kind][0].dtype.kind == "f":
        images = images.astype("float32")
    images[:] = WRONG[kind][0]
    return images.astype(WRONG[kind][0].dtype), truth


class PyDataset(keras.utils.PyDataset):
    def __init__(self, images, truth):
        super().__init__()
        self._batch = images, truth

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self._batch


def data_of(form, images, truth):
    """Two batches in one of the forms that `fit` takes."""
    if form == "PyDataset":
        return PyDataset(images, truth)
    if form == "generator":
        return ((images, truth) for _ in range(2))
    if form == "DataLoader":
        data = pytest.importorskip("torch.utils.data")
        rows = [
            (image, {name: value[i] for name, value in truth.items()})
            for i, image in enumerate(images)
        ]
        return data.DataLoader(rows, batch_size=2)
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((images, truth)).batch(2)


def compiled():
    model = tiny_model()
    options = {"schedule": "constant", "ema_decay": None, "run_eagerly": EAGER}
    model.compile("sgd", learning_rate=1e-3, **options)
    return model


@pytest.mark.slow_elsewhere
@pytest.mark.parametrize("kind", ["fractions", "normalized", "NaN", "16 bits"])
def test_fit_tells_it_for_arrays(kind):
    images, truth = wrong_batch(kind)
    with told_by_fit(kind):
        compiled().fit(images, truth, batch_size=2, verbose=0)


@pytest.mark.slow_elsewhere
@pytest.mark.parametrize("form", ["tf.data", "PyDataset", "generator", "DataLoader"])
@pytest.mark.parametrize("kind", ["fractions", "NaN"])
def test_fit_tells_it_for_batches_of_any_form(form, kind):
    model = compiled()
    images, truth = wrong_batch(kind)
    before = [np.array(v) for v in model.trainable_variables]
    with told_by_fit(kind):
        model.fit(data_of(form, images, truth), steps_per_epoch=2, verbose=0)
    after = [np.array(v) for v in model.trainable_variables]
    changed = any(not np.array_equal(a, b) for a, b in zip(before, after))
    assert changed == (kind not in CERTAIN)


@pytest.mark.slow_elsewhere
@pytest.mark.parametrize("form", ["tf.data", "PyDataset", "generator", "DataLoader"])
def test_the_first_batch_is_drawn_once_and_all_batches_are_trained_on(form):
    model = compiled()
    images, truth = batch(4)
    data, seen = data_of(form, images, truth), []
    counted = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: seen.append(step)
    )
    with warnings.catch_warnings(action="ignore"):
        model.fit(data, epochs=1, verbose=0, callbacks=[counted], steps_per_epoch=2)
    assert seen == [0, 1]


@pytest.mark.tensorflow
def test_only_the_first_batch_of_tf_data_goes_through_python(monkeypatch):
    from effdet_keras.train import inputs

    looked = []
    monkeypatch.setattr(inputs, "check_pixels", lambda *given: looked.append(given))
    images, truth = batch(6)
    data = inputs.with_checked_pixels(
        data_of("tf.data", images, truth), inputs.ErrorContext()
    )
    assert [len(x) for x, _ in data] == [2, 2, 2] and len(looked) == 1
    assert int(data.cardinality()) == 3
    assert next(iter(data))[1].keys() == truth.keys()


def test_evaluating_batches_of_ones_own_tells_it(model):
    images, truth = wrong_batch("fractions")
    evaluation = ek.callbacks.COCOEvaluation((images, truth), verbose=False)
    with told("fractions"):
        evaluation.evaluate(model)


@pytest.mark.tensorflow
def test_an_augmentation_that_returns_fractions_is_an_error():
    dataset = ek.data.from_arrays(
        [IMAGE] * 2, [[[4, 4, 40, 40]]] * 2, [[0]] * 2, ["cat"]
    )

    def normalize(example, seed):
        import tensorflow as tf

        return {**example, "image": tf.cast(example["image"], tf.float32) / 255.0}

    batches = dataset.batches(2, image_size=64, training=True, augment=normalize)
    with pytest.raises(
        Exception, match=r"returned pixels from .* to 0.99.*; they are from"
    ):
        next(iter(batches))
