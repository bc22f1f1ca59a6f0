"""COCO's numbers: of a dataset, of a user's own batches, on every backend."""

import types

import keras
import numpy as np
import pytest
from support import programs
from support.image_results import NOTHING, postprocessed
from support.kinds import slow_but

from effdet_keras.data import DetectionDataset, from_arrays, from_coco
from effdet_keras.detect.evaluate import (
    category_ids_in_dataset,
    check_evaluation_data,
    evaluate,
)
from effdet_keras.evaluate.coco import COCOMetric
from effdet_keras.labels import BACKGROUND
from effdet_keras.letterbox import letterbox_array
from effdet_keras.network.config import EfficientDetConfig

CLASS_NAMES = ("cat", "dog", "bird")
CONFIG = EfficientDetConfig.from_name(
    "efficientdet-lite0", image_size=64, max_level=5, num_classes=3
)


class NearMisses:
    """Stands for a model: it knows each image, and finds its boxes a little off."""

    config, class_names, category_ids = CONFIG, CLASS_NAMES, None

    def __init__(self, images, boxes, labels):
        self.known = {}
        for number, (image, rows, names) in enumerate(zip(images, boxes, labels)):
            rng = np.random.default_rng(number)
            extra = np.sort(rng.uniform(0, 64, (2, 2, 2)), axis=1).reshape(2, 4)
            found = np.concatenate([np.reshape(rows, (-1, 4)), extra])
            self.known[float(np.sum(image, dtype="float64"))] = (
                found + rng.normal(0, 3, found.shape),
                rng.uniform(0.1, 1, len(found)),
                [*names, *rng.integers(0, 3, 2)],
            )
        self.batch_sizes = []

    def predict_on_batch(self, images):
        assert images.dtype == np.float32
        self.batch_sizes.append(len(images))
        sums = [float(np.sum(image, dtype="float64")) for image in images]
        return postprocessed([self.known.get(key, NOTHING) for key in sums])


@pytest.fixture(scope="module")
def case():
    """Eleven images in the size of the input, boxes `yxyx` and labels."""
    rng = np.random.default_rng(3)
    images = rng.integers(0, 255, (11, 64, 64, 3), "uint8")
    boxes, labels = [], []
    for _ in images:
        count = rng.integers(0, 5)
        low = rng.uniform(0, 30, (count, 2))
        boxes.append(np.c_[low, low + rng.uniform(8, 30, (count, 2))])
        labels.append(rng.integers(0, 3, count))
    return images, boxes, labels


@pytest.fixture(scope="module")
def arrays(case):
    """The same as `fit` takes it: ground truth padded to five rows."""
    images, boxes, labels = case
    padded = {
        "boxes": np.zeros((len(images), 5, 4), "float32"),
        "labels": np.full((len(images), 5), BACKGROUND, "int32"),
    }
    for row, (rows, names) in enumerate(zip(boxes, labels)):
        padded["boxes"][row, : len(rows)] = rows
        padded["labels"][row, : len(rows)] = names
    return images, padded


@pytest.fixture(scope="module")
def numbers(case):
    dataset = from_arrays(*case, class_names=CLASS_NAMES)
    numbers = evaluate(NearMisses(*case), dataset, batch_size=4, verbose=False)
    assert 0.05 < numbers["AP"] < 0.95  # the case is neither hopeless nor trivial
    return numbers


class Batches(keras.utils.PyDataset):
    def __init__(self, images, truth):
        super().__init__()
        self.images, self.truth = images, truth

    def __len__(self):
        return 3

    def __getitem__(self, index):
        part = slice(4 * index, 4 * index + 4)
        return self.images[part], {k: v[part] for k, v in self.truth.items()}


def tf_data(images, truth):
    tf = pytest.importorskip("tensorflow")
    return tf.data.Dataset.from_tensor_slices((images, truth))


@pytest.mark.parametrize(
    "kind",
    [
        "tf.data",
        "tf.data, shuffled, float images",
        "tf.data of unknown length",
        "PyDataset",
        "list",
        "arrays",
    ],
)
def test_a_users_own_batches_give_the_numbers_of_the_dataset(
    case, arrays, numbers, kind
):
    images, truth = arrays
    py_dataset = Batches(images, truth)
    if kind == "tf.data":
        data = tf_data(images, truth).batch(4)
    elif kind == "tf.data, shuffled, float images":
        truth = {**truth, "image_id": np.arange(1, len(images) + 1)}
        data = tf_data(images.astype("float32"), truth).shuffle(11).batch(4)
    elif kind == "tf.data of unknown length":
        data = tf_data(images, truth).filter(lambda *_: True).batch(4)
    else:
        data = {
            "PyDataset": py_dataset,
            "list": [list(py_dataset[i]) for i in range(3)],
            "arrays": (images, truth),
        }[kind]
    detector = NearMisses(*case)
    for _ in range(2):  # nothing is left of a first evaluation
        assert evaluate(detector, data, batch_size=4, verbose=False) == numbers
    assert set(detector.batch_sizes) == {4}  # the last batch of 3 was filled up


@pytest.mark.extra_packages
def test_batches_of_torch_are_taken_too(case, arrays, numbers):
    torch = pytest.importorskip("torch")
    images, truth = arrays
    rows = [(images[i], {k: v[i] for k, v in truth.items()}) for i in range(11)]
    loader = torch.utils.data.DataLoader(rows, batch_size=4)
    assert evaluate(NearMisses(*case), loader, verbose=False) == numbers


def test_image_scale_brings_boxes_back_to_the_images(case, arrays, numbers):
    """Images twice as large: what was small may be medium, all else is equal."""
    images, truth = arrays
    truth = {**truth, "image_scale": np.full(11, 2.0)}
    scaled = evaluate(NearMisses(*case), (images, truth), verbose=False)
    large = from_arrays(
        images.repeat(2, axis=1).repeat(2, axis=2),
        [rows * 2 for rows in case[1]],
        case[2],
        class_names=CLASS_NAMES,
    )
    metric = COCOMetric(large.to_coco())
    assert scaled["AP"] == numbers["AP"] and scaled["APs"] != numbers["APs"]
    for image_id, image in enumerate(images, start=1):
        boxes, scores, labels = NearMisses(*case).known[float(np.sum(image * 1.0))]
        boxes = np.clip(boxes.astype("float32"), 0, 64) * 2
        metric.update(image_id, boxes, scores, np.add(labels, 1))
    expected = metric.result()
    assert scaled == pytest.approx(expected)


def test_the_models_category_ids_and_names_are_those_of_the_batches(arrays, case):
    detector = NearMisses(*case)
    detector.category_ids, detector.class_names = (7, 5, 9), None
    numbers = evaluate(detector, arrays, verbose=False)
    assert list(numbers)[12:] == ["AP/5", "AP/7", "AP/9"]
    metric = COCOMetric(from_arrays(*case, class_names=CLASS_NAMES).to_coco())
    detector.category_ids = (2, 3, 4)  # 4 is in no annotation, 1 has no label
    assert evaluate(detector, arrays, metric=metric, verbose=False)["AP/cat"] == 0.0


def test_names_decide_where_the_ids_of_some_classes_are_others(case):
    """As of a class that was added from data that has it alone."""
    dataset = from_arrays(*case, class_names=CLASS_NAMES)
    dataset = dataset.filter(classes=[CLASS_NAMES[1]])
    config = types.SimpleNamespace(has_detection=True, num_classes=3)
    detector = types.SimpleNamespace(
        config=config, class_names=("x", CLASS_NAMES[1], "y"), category_ids=(9, 8, 7)
    )
    (known,) = dataset.category_ids
    ids = category_ids_in_dataset(detector, dataset)
    assert ids.tolist() == [known + 1, known, known + 2]
    detector.class_names = ("x", "z", "y")
    with pytest.raises(ValueError, match="mean different things"):
        category_ids_in_dataset(detector, dataset)


@pytest.mark.parametrize(
    ("data_names", "data_ids", "expected"),
    [
        (("person", "zebra"), (1, 24), [1, 24, 25]),  # the id of person agrees
        (("zebra", "person"), (0, 1), [1, 0, 2]),
        (("person", "zebra", "lion"), (1, 2, 3), [1, 2, 3]),
        # Names do not tell of the tiger: the ids that are shared do.
        (("zebra", "tiger"), (2, 5), [1, 2, 3]),
        # But the zebra has two ids.
        (("person", "zebra", "tiger"), (1, 24, 5), None),
    ],
)
def test_a_class_of_one_name_is_one_class(data_names, data_ids, expected):
    """Ids that agree by chance would make the AP of the others 0."""
    detector = types.SimpleNamespace(
        config=types.SimpleNamespace(has_detection=True, num_classes=3),
        class_names=("person", "zebra", "lion"),
        category_ids=(1, 2, 3),
    )
    dataset = DetectionDataset([], data_names, data_ids)
    if expected is None:
        with pytest.raises(ValueError, match="mean different things"):
            category_ids_in_dataset(detector, dataset)
    else:
        assert category_ids_in_dataset(detector, dataset).tolist() == expected


@pytest.mark.smoke
def test_inputs_are_bit_for_bit_those_of_detect():
    rng = np.random.default_rng(5)
    sizes = [(64, 64), (48, 80), (100, 60), (30, 30), (33, 200)]
    images = [rng.integers(0, 255, (*size, 3), "uint8") for size in sizes]
    dataset = from_arrays(images, [[]] * 5, [[]] * 5, class_names=CLASS_NAMES)
    seen = []

    def predict_on_batch(batch):
        seen.append(batch.copy())
        return postprocessed([NOTHING] * len(batch))

    detector = types.SimpleNamespace(
        config=CONFIG,
        class_names=CLASS_NAMES,
        category_ids=None,
        predict_on_batch=predict_on_batch,
    )
    evaluate(detector, dataset, batch_size=2, verbose=False)
    expected = [
        letterbox_array(image, CONFIG.image_size, CONFIG.padding_rgb)[0]
        for image in images
    ]
    np.testing.assert_array_equal(np.concatenate(seen)[:5], expected)
    pipeline = dataset.batches(2, image_size=64, pad_value=CONFIG.padding_rgb)
    pipeline = np.concatenate([images for images, _ in pipeline])
    # TensorFlow rounds the interpolation otherwise, in the last bit of 255.
    np.testing.assert_allclose(pipeline, expected, atol=1e-4)


def test_an_image_that_cannot_be_read_is_named_and_counts_as_empty(
    case, tmp_path, capsys
):
    from PIL import Image

    images, boxes, labels = case
    dataset = from_arrays(images, boxes, labels, class_names=CLASS_NAMES)
    coco = dataset.to_coco()
    for number, (image, entry) in enumerate(zip(images, coco["images"])):
        entry["file_name"] = f"{number}.png"
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    on_disk = from_coco(coco, tmp_path)
    (tmp_path / "7.png").write_bytes(b"")
    damaged = evaluate(NearMisses(*case), on_disk, verbose=False)
    misses_one = NearMisses(*case)
    del misses_one.known[float(np.sum(images[7], dtype="float64"))]
    assert damaged == evaluate(misses_one, dataset, verbose=False)
    assert damaged != evaluate(NearMisses(*case), dataset, verbose=False)
    assert "1 of 11 images could not be read" in (error := capsys.readouterr().err)
    assert "7.png" in error and "counted as empty" in error


# --- what cannot be evaluated


def refused(data, match, error=ValueError):
    """Both the evaluation and the look before a training refuse it."""
    detector = NearMisses([], [], [])
    with pytest.raises(error, match=match):
        check_evaluation_data(detector, data, batch_size=4)
    with pytest.raises(error, match=match):
        evaluate(detector, data, batch_size=4, verbose=False)


@pytest.mark.parametrize(
    "data",
    ["valid.json", iter([]), [(1, 2, 3)]],
    ids=["a path", "an iterator", "tuples of three"],
)
def test_data_of_another_kind_is_told_what_is_needed(data):
    refused(data, "An evaluation takes a `DetectionDataset`", TypeError)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"labels": None}, "must be a dict with .*'labels'"),
        ({"labels": np.full((2, 3), 3)}, "below the model's `num_classes`, 3"),
        ({"boxes": np.tile([8, 8, 4, 12], (2, 3, 1))}, "ends before it begins"),
        ({"images": np.zeros((2, 32, 64, 3))}, r"shape=\(2, 32, 64, 3\)"),
    ],
    ids=str,
)
def test_a_batch_that_cannot_be_right_is_refused(change, match):
    truth = {"boxes": np.tile([4, 4, 8, 8], (2, 3, 1)), "labels": np.ones((2, 3), int)}
    images = change.pop("images", np.zeros((2, 64, 64, 3)))
    truth = {k: v for k, v in {**truth, **change}.items() if v is not None}
    refused([(images, truth)], match)


def test_data_without_end_or_without_images_is_refused(arrays):
    refused([], "at least one image")
    refused(tf_data(*arrays).batch(4).repeat(), "if they end", TypeError)


# --- without TensorFlow

# Most of JAX's time is compiling, of a tiny network that is fast anyhow.
_QUICK_COMPILER = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

_WITHOUT_TENSORFLOW = """
import sys; sys.modules["tensorflow"] = None
import numpy as np
import effdet_keras as ek
from support.tiny import tiny_model

model = tiny_model()
model.compile(optimizer="sgd", loss=ek.DetectionLoss())
images = np.random.default_rng(0).integers(0, 255, (4, 64, 64, 3)).astype("float32")
boxes = [[[4, 4, 40, 36]]] * 4
truth = {"boxes": np.float32(boxes), "labels": np.zeros((4, 1), "int32")}
valid = ek.data.from_arrays(
    images.astype("uint8"), boxes, [[0]] * 4, class_names=("cat", "dog", "bird")
)
numbers = model.fit(
    images, truth, batch_size=2, verbose=0,
    callbacks=[ek.callbacks.COCOEvaluation(valid, batch_size=2)],
).history
of_arrays = ek.callbacks.COCOEvaluation((images, truth), batch_size=2).evaluate(model)
print(of_arrays == {name: numbers[name][-1] for name in of_arrays})
"""


@pytest.mark.extra_packages
@pytest.mark.parametrize("backend", slow_but(["torch"], ["jax", "torch"]))
def test_evaluation_in_fit_needs_no_tensorflow(backend):
    pytest.importorskip(backend)
    variables = {"KERAS_BACKEND": backend, "XLA_FLAGS": _QUICK_COMPILER}
    said = programs.run_alone("-c", _WITHOUT_TENSORFLOW, **variables)
    assert said.splitlines()[-1] == "True"
    assert "4 of 4 images evaluated" in said
