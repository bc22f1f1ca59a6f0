"""Data that cannot be trained on: one clear error each, before weights move."""

import pathlib
import types

import keras
import numpy as np
import pytest
from support.arrays import assert_equal
from support.small_datasets import record_of
from support.tiny import EAGER, Stream, batch, tiny_model, values

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.train import inputs


@pytest.fixture(scope="module")
def model():
    model = tiny_model()
    model.compile(ema_decay=None, run_eagerly=EAGER)
    return model


@pytest.fixture(scope="module")
def compiled():
    """Traced once for all batches that `fit` gets one by one."""
    model = tiny_model()
    model.compile(keras.optimizers.SGD(1e-3), run_eagerly=EAGER)
    return model


@pytest.fixture
def at_first_step(compiled):
    compiled.optimizer.iterations.assign(0)
    return compiled


@pytest.mark.parametrize(
    "data, message",
    [
        (batch(label=3), "`num_classes`, 3"),
        (batch(box=(40, 40, 8, 8)), "ends before it begins"),
        (batch(box=(0.1, 0.1, 0.6, 0.6)), "between 0 and 1"),
        (batch(box=(8, 300, 40, 340)), "outside"),
        (batch(count=0), "no images"),
        ((batch()[0][0], {}), r"in batches.*\.batch\("),
        (("images/", None), r"data\.load.*str"),
        ((np.zeros((2, 32, 64, 3)), batch()[1]), r"64, 64.*\(2, 32, 64, 3\)"),
        ((batch()[0], {"boxes": np.zeros((2, 1, 4))}), "'labels'"),
    ],
)
def test_wrong_arrays_are_refused_before_training(model, data, message):
    before = int(model.optimizer.iterations)
    with pytest.raises(ValueError, match=message):
        model.fit(*data, batch_size=2, verbose=0)
    with pytest.raises(ValueError, match=message):
        model.fit(*batch(), validation_data=data, batch_size=2, verbose=0)
    with pytest.raises(ValueError, match=message):
        model.evaluate(*data, batch_size=2, verbose=0)
    assert int(model.optimizer.iterations) == before


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        (np.zeros((0, 64, 64, 3), "uint8"), ValueError, "has no images"),
        (np.zeros((2, 32, 64, 3), "uint8"), ValueError, r"64, 64.*\(2, 32, 64, 3\)"),
        (np.zeros((64, 64, 3), "uint8"), ValueError, "must come in batches"),
        (Stream(), ValueError, "dataset is empty"),
        (None, TypeError, "use `detect`. Received: x=None"),
        ("a.jpg", TypeError, "use `detect`. Received: x='a.jpg'"),
        ([pathlib.Path("a.jpg")], TypeError, "For paths, .* use `detect`"),
    ],
    ids=["none", "size", "one image", "empty", "None", "path", "paths"],
)
def test_what_predict_cannot_take_is_refused(model, wrong, error, message):
    with pytest.raises(error, match=message):
        model.predict(wrong, verbose=0)


def with_truth(**changes):
    images, truth = batch(padding=1)
    return images, truth | {n: change(truth) for n, change in changes.items()}


WRONG_FORMS = {
    "labels [B, 1]": ({"labels": lambda t: t["labels"][:, :1]}, "'labels' of the"),
    "labels [B, M, 1]": ({"labels": lambda t: t["labels"][..., None]}, "not one-hot"),
    "labels one-hot": ({"labels": lambda t: np.eye(3)[t["labels"]]}, "not one-hot"),
    "labels of text": ({"labels": lambda t: t["labels"].astype(str)}, "class numbers"),
    "boxes of text": ({"boxes": lambda t: t["boxes"].astype(str)}, r"\[B, M, 4\]"),
    "boxes [B, M, 5]": ({"boxes": lambda t: np.zeros((2, 2, 5))}, r"\[B, M, 4\]"),
    "boxes [B, 4]": ({"boxes": lambda t: t["boxes"][:, 0]}, r"\[B, M, 4\].*\(2, 4\)"),
    "weights [B]": ({"weights": lambda t: np.ones(2)}, "'weights' of .* for each box"),
}


@pytest.mark.parametrize("wrong", WRONG_FORMS)
def test_wrong_shapes_and_types_of_ground_truth_are_named(model, wrong):
    changes, message = WRONG_FORMS[wrong]
    data = with_truth(**changes)
    with pytest.raises(ValueError, match=message):
        model.fit(*data, batch_size=2, verbose=0)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with pytest.raises(ValueError, match=message):
            model.fit(tf.data.Dataset.from_tensors(data), verbose=0)


def test_ground_truth_is_arrays_of_numbers(model):
    as_lists = with_truth(boxes=lambda t: t["boxes"].tolist())
    with pytest.raises(ValueError, match=r"array of numbers.*boxes='list'$"):
        model.fit(*as_lists, verbose=0)
    with pytest.raises(ValueError, match="array of numbers.*names='ndarray'"):
        model.fit(*with_truth(names=lambda t: np.array(["a", "b"])), verbose=0)


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_weights_of_boxes_are_finite_and_at_least_0(at_first_step, weight):
    wrong = with_truth(weights=lambda t: np.full(t["labels"].shape, weight))
    message = f"`weights` must be finite numbers of at least 0.*weight {weight}"
    with pytest.raises(ValueError, match=message):
        at_first_step.fit(*wrong, verbose=0)
    with pytest.raises(ValueError, match=f"{message}.*training step 1"):
        at_first_step.fit(Stream(wrong), verbose=0)
    # Rows of padding may have any weight.
    padding = with_truth(weights=lambda t: np.where(t["labels"] < 0, weight, 1.0))
    assert inputs.explain_batch(padding[1], at_first_step.config) is None


@pytest.mark.parametrize(
    "wrong, message",
    [
        (batch(label=7), "(?s)`num_classes`, 3.*label 7.*training step 2"),
        (batch(box=(40, 40, 8, 8)), "(?s)ends before it begins.*training step 2"),
    ],
)
def test_wrong_truth_in_a_stream_stops_its_step_and_moves_nothing(
    at_first_step, wrong, message
):
    model = at_first_step
    with pytest.raises(ValueError, match=message):
        model.fit(Stream(batch(), wrong), shuffle=False, verbose=0)
    assert int(model.optimizer.iterations) == 1
    assert all(np.isfinite(w).all() for w in values(model.weights))


@pytest.mark.tensorflow
def test_an_empty_stream_of_tf_data():
    import tensorflow as tf

    truth = {
        "boxes": tf.TensorSpec((None, None, 4)),
        "labels": tf.TensorSpec((None, None), tf.int32),
    }
    spec = (tf.TensorSpec((None, 64, 64, 3)), truth)
    empty = tf.data.Dataset.from_generator(lambda: iter(()), output_signature=spec)
    scheduled = tiny_model()
    scheduled.compile("sgd", schedule="cosine", run_eagerly=EAGER)
    with pytest.raises(ValueError, match="dataset is empty"):
        scheduled.fit(empty, steps_per_epoch=3, verbose=0)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda model, data: model.fit(data, verbose=0), "steps_per_epoch"),
        (
            lambda model, data: model.fit(*batch(), validation_data=data, verbose=0),
            "validation_steps",
        ),
        (lambda model, data: model.evaluate(data, verbose=0), "steps"),
        (lambda model, data: model.predict(data, verbose=0), "steps"),
    ],
)
def test_data_without_end_needs_a_number_of_steps(compiled, call, argument):
    import tensorflow as tf

    endless = tf.data.Dataset.from_tensors(batch()).repeat()
    with pytest.raises(ValueError, match=f"without end: pass `{argument}`"):
        call(compiled, endless)


def test_a_loss_that_is_not_finite_names_step_and_images(at_first_step):
    model = at_first_step
    images, truth = batch()
    truth["image_id"] = np.array([17, 4])
    infinite = images.copy()
    infinite[1, 0, 0] = np.inf
    model.fit(Stream((images, truth)), verbose=0)
    before = values(model.trainable_variables)
    with pytest.raises(FloatingPointError, match="(?s)step 2 .*`image_id` 17, 4"):
        model.fit(Stream((infinite, truth)), verbose=0)
    assert_equal(before, model.trainable_variables)


@pytest.mark.slow_elsewhere
def test_a_batch_without_any_box_trains(model):
    images, truth = batch()
    truth = {"boxes": truth["boxes"][:, :0], "labels": truth["labels"][:, :0]}
    logs = model.train_on_batch(images, truth, return_dict=True)
    assert np.isfinite(float(logs["loss"])) and float(logs["box_loss"]) == 0


@pytest.mark.parametrize("call", ["train_on_batch", "test_on_batch"])
def test_pixels_of_one_batch_are_checked(model, call):
    images, truth = batch()
    with pytest.raises(ValueError, match="a batch of images"):
        getattr(model, call)(257 * images, truth)


@pytest.mark.slow_elsewhere
def test_any_image_size_will_do():
    """Sides that strides do not divide: levels are rounded up, as in the reference."""
    model = EfficientDet.from_preset(
        "efficientdet-lite0", image_size=(50, 75), max_level=5, num_classes=2
    )
    outputs = model(np.zeros((1, 50, 75, 3), "uint8"))
    assert outputs["box_deltas"].shape[1] == len(model.anchors)
    assert len(model.anchors) == 9 * (7 * 10 + 4 * 5 + 2 * 3)


# Datasets of our own, and `tf.data`: TensorFlow reads them.

OTHER_NAMES = r"(?s)same order.*circle.*cat, dog"


@pytest.fixture
def dataset(tmp_path):
    data = pytest.importorskip("effdet_keras.data")
    return data.write_shapes(tmp_path, num_train=4, num_valid=1, image_size=64)[0]


@pytest.fixture
def of_shapes(dataset):
    return tiny_model(class_names=dataset.class_names)


def batches(model, dataset, image_size=64):
    """Batches of the dataset, with the class names of the model."""
    named = type(dataset)(dataset.records, model.class_names)
    return named.batches(2, image_size=image_size)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda model, data: data, OTHER_NAMES),
        (lambda model, data: model.batches(data, 2).take(5), OTHER_NAMES),
        (lambda model, data: data.subset([]), "empty"),
        (lambda model, data: batches(model, data).take(0), "empty"),
        (lambda model, data: batches(model, data).unbatch(), r"in batches.*\.batch\("),
        (lambda model, data: batches(model, data, 128), r"64, 64, 3\).*128"),
    ],
)
def test_datasets_that_do_not_fit_the_model_are_refused(model, dataset, made, message):
    with pytest.raises(ValueError, match=message):
        model.fit(made(model, dataset), batch_size=2, verbose=0)
    with pytest.raises(ValueError, match=message):
        validation = made(model, dataset)
        model.fit(*batch(), validation_data=validation, batch_size=2, verbose=0)


def test_batches_of_the_model_have_its_size_and_padding(of_shapes, dataset):
    made = of_shapes.batches(dataset, 3, training=True, scale_jitter=(0.5, 0.5))
    images, _ = next(iter(made))
    assert images.shape == (3, 64, 64, 3)
    color = np.asarray(images)[:, -1, -1]  # the image fills the upper left
    np.testing.assert_array_equal(color, [of_shapes.config.mean_rgb] * 3)
    assert next(iter(of_shapes.batches(dataset, 2, image_size=32)))[0].shape[1] == 32


def infinite(images, truth):
    return images * float("inf"), truth


@pytest.mark.slow_elsewhere
@pytest.mark.parametrize(
    ("rate", "changed"),
    [
        (1e30, lambda model, data: data),
        (1e-3, lambda model, data: model.batches(data, 2).map(infinite).take(1)),
    ],
    ids=["the dataset", "what was made of batches"],
)
def test_file_names_of_the_batch_are_told(of_shapes, dataset, rate, changed):
    model = of_shapes
    model.compile(keras.optimizers.SGD(rate), clip_norm=None, run_eagerly=EAGER)
    with pytest.raises(FloatingPointError, match=r"images 0000\d\.jpg, 0000\d"):
        model.fit(changed(model, dataset), batch_size=2, epochs=9, verbose=0)


def test_where_no_image_can_be_read_the_words_are_those_of_the_reader(
    of_shapes, dataset
):
    for record in dataset.records:
        pathlib.Path(record.image).write_bytes(b"no image")
    of_shapes.compile(run_eagerly=EAGER)
    batches = dataset.batches(2, image_size=64, training=True)
    with pytest.raises(ValueError, match=r"None of the .*`read_image` expects.*\.jpg"):
        of_shapes.fit(batches, verbose=0)


@pytest.mark.slow
@pytest.mark.slow_elsewhere
def test_predict_takes_a_dataset_as_fit_and_evaluate_do(of_shapes, dataset):
    found = of_shapes.predict(dataset, batch_size=3, verbose=0)
    assert {k: v.shape for k, v in found.items()} == {
        "boxes": (len(dataset), 100, 4),
        "scores": (len(dataset), 100),
        "labels": (len(dataset), 100),
        "num_detections": (len(dataset),),
    }
    images = np.concatenate([x for x, _ in of_shapes.batches(dataset, 3)])
    again = of_shapes.predict(images, batch_size=3, verbose=0)
    for name, value in found.items():
        np.testing.assert_array_equal(value, again[name])


def test_the_model_keeps_the_ids_of_what_it_is_trained_on(dataset):
    names, ids = dataset.class_names, (17, 4, 9)
    model = tiny_model(class_names=None)
    model.compile(keras.optimizers.SGD(1e-3), run_eagerly=EAGER)
    model.fit(dataset.with_classes(names, ids), batch_size=2, epochs=0, verbose=0)
    assert (model.class_names, model.category_ids) == (names, ids)
    assert model.get_config()["category_ids"] == ids


def records_with(boxes_of_each):
    image = np.zeros((64, 64, 3), np.uint8)
    return [
        record_of(image, (64, 64), i + 1, [[9] * 4] * count, [0] * count)
        for i, count in enumerate(boxes_of_each)
    ]


def test_data_without_any_box_is_refused_before_training(model):
    images, truth = batch()
    nothing = {"boxes": np.zeros((2, 3, 4)), "labels": np.full((2, 3), -1)}
    with pytest.raises(ValueError, match="has no box, so there is nothing to learn"):
        model.fit(images, nothing, verbose=0)
    empty = DetectionDataset(records_with([0, 0]), ("cat", "dog", "bird"))
    with pytest.raises(ValueError, match="of 2 images: none of them has a box"):
        model.fit(empty, verbose=0)
    with pytest.raises(ValueError, match="of 2 images: none of them has a box"):
        model.fit(model.batches(empty, 2, training=True), verbose=0)
    # An empty image among others is fine, and evaluation takes what it gets.
    some = {"boxes": np.array(truth["boxes"]), "labels": np.array(truth["labels"])}
    some["boxes"][0], some["labels"][0] = 0, -1
    model.fit(images, some, verbose=0)
    model.evaluate(images, nothing, verbose=0)


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="traces nothing")
def test_one_step_is_traced_for_any_number_of_boxes(monkeypatch):
    model = tiny_model()
    model.compile(ema_decay=None)
    traces, compute_loss = [], model.compute_loss

    def counted(*arguments, **options):
        traces.append(arguments)
        return compute_loss(*arguments, **options)

    monkeypatch.setattr(model, "compute_loss", counted)
    records = [
        record_of(np.zeros((64, 64, 3), np.uint8), (64, 64), i, [[9] * 4] * i, [0] * i)
        for i in range(8)
    ]
    dataset = DetectionDataset(records, model.class_names)
    batches = model.batches(dataset, 1, training=True, augment=None)
    model.fit(batches, verbose=0)
    assert len(traces) == 1


# Numbers of `fit` that cannot be right.


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"batch_size": -4},
        {"batch_size": 2.5},
        {"epochs": -1},
        {"epochs": 1.0},
        {"epochs": True},
        {"steps_per_epoch": 0},
        {"steps_per_epoch": -2},
        {"initial_epoch": -1},
        {"validation_steps": 0},
        {"validation_batch_size": 0},
        {"validation_freq": 0},
    ],
    ids=str,
)
def test_numbers_that_cannot_be_right_are_refused(model, wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"`{name}` must be a whole number"):
        model.fit(*batch(), verbose=0, validation_data=batch(), **wrong)


def test_batches_evaluate_and_predict_refuse_them_too(model):
    images, truth = batch()
    for call in (
        lambda: model.evaluate(images, truth, batch_size=0, verbose=0),
        lambda: model.evaluate(images, truth, steps=0, verbose=0),
        lambda: model.predict(images, batch_size=-1, verbose=0),
        lambda: model.batches(None, 0),
        lambda: model.batches(None, steps_per_epoch=0),
        lambda: tiny_model().compile(steps_per_execution=0),
    ):
        with pytest.raises(ValueError, match="must be a whole number of at least 1"):
            call()


def test_a_validation_split_is_for_arrays(model):
    with pytest.raises(ValueError, match=r"works only with arrays.*split\(0.8\)"):
        model.fit(Stream(batch()), validation_split=0.5, verbose=0)
    with pytest.raises(ValueError, match="must leave at least one image for training"):
        model.fit(*batch(), validation_split=0.999, verbose=0)


def test_a_fit_that_trains_nothing_says_so(model):
    with pytest.warns(UserWarning, match="from `initial_epoch=5` to `epochs=3`"):
        history = model.fit(*batch(), epochs=3, initial_epoch=5, verbose=0)
    assert history.epoch == []


@pytest.mark.parametrize("wrong", [3, "EarlyStopping", keras.callbacks.EarlyStopping])
def test_what_is_no_callback_is_named(model, wrong):
    with pytest.raises(TypeError, match="only instances of `keras.callbacks.Callback`"):
        model.fit(*batch(), verbose=0, callbacks=[wrong])


def test_validation_data_that_is_empty_is_refused(model):
    with pytest.raises(ValueError, match="take a `DetectionDataset`"):
        model.fit(*batch(), verbose=0, validation_data=())


def with_pixels(kind, factor):
    images, truth = batch()
    images = images * factor
    if kind == "arrays":
        return images, truth
    if kind == "a PyDataset":
        return Stream((images, truth))
    if kind == "a generator":
        return (pair for pair in [(images, truth)])
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensors((images, truth))


@pytest.mark.parametrize("kind", ["arrays", "a PyDataset", "a generator", "tf.data"])
def test_pixels_of_validation_data_are_checked_in_fit(compiled, kind):
    fractions, of_16_bits = (with_pixels(kind, factor) for factor in (1 / 255, 256.0))
    with pytest.warns(UserWarning, match="Multiply fractions by 255"):
        compiled.fit(*batch(), verbose=0, validation_data=fractions)
    with pytest.raises(ValueError, match="0 to 255") as error:
        compiled.fit(*batch(), verbose=0, validation_data=of_16_bits)
    assert "did not change the model" not in str(error.value)  # the training did


def test_weights_of_validation_images_are_refused_before_training(compiled):
    before = int(compiled.optimizer.iterations)
    with pytest.raises(ValueError, match="does not accept `sample_weight`"):
        compiled.fit(*batch(), verbose=0, validation_data=(*batch(), np.ones(2)))
    assert int(compiled.optimizer.iterations) == before
    compiled.fit(*batch(), verbose=0, validation_data=(*batch(), None))


class CountingStream(Stream):
    drawn = 0

    def __getitem__(self, index):
        self.drawn += 1
        return super().__getitem__(index)


def test_validation_data_is_checked_once_and_not_in_each_epoch(compiled, monkeypatch):
    def drawn(epochs):
        stream = CountingStream(batch(), batch())
        compiled.fit(*batch(), epochs=epochs, verbose=0, validation_data=stream)
        return stream.drawn

    assert drawn(4) - drawn(2) == 2 * 2  # two batches in each epoch, and no more
    monkeypatch.setattr(inputs, "explain_batch", lambda *_: checked.append(1))
    checked = []
    compiled.fit(*batch(), epochs=3, verbose=0, validation_data=batch())
    assert len(checked) == 2  # the ground truth of the training, and of the validation


# Batches of other libraries.


def in_form_of_keras_cv(names="classes"):
    images, truth = batch()
    return images, {"boxes": truth["boxes"], names: truth["labels"]}


@pytest.mark.parametrize("names", ["classes", "labels"])
def test_batches_of_keras_cv_get_the_lines_that_convert_them(model, names):
    images, boxes = in_form_of_keras_cv(names)
    whole = {"images": images, "bounding_boxes": boxes}
    lines = rf'(?s)def convert.*"labels": truth\["{names}"\].*bounding_boxes"\]'
    for data in ((whole,), (Stream(whole),), (images, {"bounding_boxes": boxes})):
        with pytest.raises(ValueError, match=lines):
            model.fit(*data, verbose=0)


def test_a_pair_with_classes_is_one_of_keras_cv(model):
    lines = r'(?s)"labels": truth\["classes"\].*data\.map\(convert\)'
    for data in (in_form_of_keras_cv(), (Stream(in_form_of_keras_cv()),)):
        with pytest.raises(ValueError, match=lines):
            model.fit(*data, verbose=0)
        with pytest.raises(ValueError, match=lines):
            model.evaluate(*data, verbose=0)
    # In a stream that cannot be looked into before, its step says it.
    generator = (pair for pair in [in_form_of_keras_cv()] * 2)
    with pytest.raises(ValueError, match=lines):
        model.fit(generator, batch_size=2, steps_per_epoch=2, verbose=0)


@pytest.mark.tensorflow
def test_tf_data_of_keras_cv_and_ragged_boxes_get_lines_that_work(model):
    import tensorflow as tf

    images, boxes = in_form_of_keras_cv()
    boxes = {"boxes": boxes["boxes"][..., [1, 0, 3, 2]], "classes": boxes["classes"]}
    whole = {"images": images, "bounding_boxes": boxes}
    ragged = tf.ragged.constant(
        [[[8.0, 8, 40, 40]], []], ragged_rank=1, inner_shape=(4,)
    )
    labels = tf.ragged.constant([[1], []])
    for arrays in (whole, (images, {"boxes": ragged, "labels": labels})):
        data = tf.data.Dataset.from_tensor_slices(arrays).batch(2)
        if isinstance(arrays, tuple):
            with pytest.raises(ValueError, match=r"to_tensor\(-1\)"):
                model.fit(*arrays, verbose=0)
        with pytest.raises(ValueError, match=r"(?s)def convert.*data\.map") as raised:
            model.fit(data, verbose=0)
        # The lines are indented: they begin with `def` and end with `data = `.
        lines = [
            line[4:] for line in str(raised.value).splitlines() if line[:4] == " " * 4
        ]
        names = {"tf": tf, "data": data}
        exec("\n".join(lines), names)
        (converted,) = names["data"]
        assert converted[1]["labels"].shape == (2, 1)
        np.testing.assert_array_equal(converted[1]["boxes"][0, 0], [8, 8, 40, 40])
        model.fit(names["data"], verbose=0)


@pytest.mark.tensorflow
def test_images_of_several_sizes_get_the_cure(model):
    import tensorflow as tf

    images = tf.RaggedTensor.from_row_lengths(tf.zeros((5, 4, 3)), [2, 3])
    _, truth = batch()
    data = tf.data.Dataset.from_tensors((images, truth))
    with pytest.raises(ValueError, match="must be resized.*image_size"):
        model.fit(data, verbose=0)


# What XLA takes on processors.


@pytest.mark.parametrize("compiles", [True, False])
def test_xla_on_processors_says_what_to_expect(compiles, monkeypatch, capsys):
    model = types.SimpleNamespace(
        jit_compile=compiles, run_eagerly=False, train_function=None, settings=None
    )
    monkeypatch.setattr(inputs, "runs_on_processors", lambda: True)
    inputs.print_training_hints(model, None)
    assert ("takes a minute or more" in capsys.readouterr().out) is compiles
    model.train_function = print  # it was compiled before
    inputs.print_training_hints(model, None)
    assert capsys.readouterr().out == ""
