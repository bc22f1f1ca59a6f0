"""Augmentations in `batches`: where they act, their partners, and plain errors."""

import re

import numpy as np
import pytest
import tensorflow as tf

from effdet_keras import augment as ek_augment
from effdet_keras.augment.augmentation import fault_of
from effdet_keras.data import from_arrays
from effdet_keras.data.pipeline import batches
from effdet_keras.data.pipeline.image_reader import find_image_readers

pytestmark = pytest.mark.tensorflow

STILL = {"image_size": 32, "flip_probability": 0, "scale_jitter": (1, 1)}
IN_ORDER = {**STILL, "training": True, "shuffle": False, "seed": 0}


def grey_images(count):
    """Image `i` has the grey value `10 * i` and one box with the label `i`."""
    images = [np.full((32, 32, 3), 10 * i, "uint8") for i in range(count)]
    boxes = [[[4, 8, 20, 24]]] * count
    names = [f"class {i}" for i in range(count)]
    return from_arrays(images, boxes, [[i] for i in range(count)], names)


def values(batches):
    return [np.unique(image).tolist() for images, _ in batches for image in images]


def brighter(example, seed):
    return {**example, "image": example["image"] + 1}


def noisy(example, seed):
    noise = tf.random.stateless_uniform([], seed, 0, 200, tf.int32)
    return {**example, "image": example["image"] + tf.cast(noise, tf.uint8)}


class Sum(ek_augment.Augmentation):
    """Adds up the pixels of some images and puts their boxes together."""

    def __init__(self, num_images=3):
        self.num_images = num_images

    def augment(self, example, seed):
        return {
            "image": tf.add_n([one["image"] for one in example]),
            "boxes": tf.concat([one["boxes"] for one in example], axis=0),
            "labels": tf.concat([one["labels"] for one in example], axis=0),
        }


@pytest.mark.parametrize(
    "augment, change",
    [
        (None, 0),
        ([], 0),
        (brighter, 1),
        ([brighter, brighter], 2),
        (ek_augment.Compose([brighter]), 1),
        ([ek_augment.RandomApply(brighter, 1.0), brighter], 2),
        (ek_augment.RandomApply(brighter, 0.0), 0),
    ],
)
def test_a_function_a_list_and_an_augmentation_are_applied(augment, change):
    batches = grey_images(3).batches(2, **IN_ORDER, augment=augment)
    assert values(batches) == [[change], [10 + change]]


def test_augmentations_see_the_whole_image_in_its_own_pixels():
    seen = []

    def look(example, seed):
        seen.append({key: value.shape.as_list() for key, value in example.items()})
        return {**example, "boxes": example["boxes"] + 2.0}

    image = np.zeros((64, 128, 3), "uint8")
    dataset = from_arrays([image], [[[0, 0, 30, 60]]], [[0]], ["cat"])
    _, truth = next(iter(dataset.batches(1, **IN_ORDER, augment=look)))
    # Moved by two pixels of the image, which is then scaled to a quarter.
    assert truth["boxes"].numpy().tolist() == [[[0.5, 0.5, 8.0, 15.5]]]
    assert seen[0]["image"] == [None, None, 3] and seen[0]["boxes"] == [None, 4]


def test_crowds_do_not_reach_them():
    image, boxes = np.zeros((32, 32, 3), "uint8"), [[0, 0, 9, 9], [0, 0, 30, 30]]
    crowds = {"is_crowd": [[False, True]]}
    dataset = from_arrays([image], [boxes], [[0, 0]], ["cat"], **crowds)

    def counted(example, seed):
        count = tf.cast(tf.shape(example["boxes"])[0], tf.uint8)
        return {**example, "image": example["image"] + count}

    assert values(dataset.batches(1, **IN_ORDER, augment=counted)) == [[1]]


def test_one_seed_gives_the_same_images_and_epochs_differ():
    def epochs(seed):
        options = {**STILL, "training": True, "seed": seed, "augment": noisy}
        batches = grey_images(4).batches(2, **options)
        return [values(batches) for _ in range(2)]

    first = epochs(1)
    assert first == epochs(1)
    assert first[0] != first[1] and first != epochs(2)


def test_partners_are_other_images_of_the_dataset():
    dataset = grey_images(6)
    batches = dataset.batches(6, **IN_ORDER, augment=Sum(3))
    drawn = set()
    for _ in range(3):
        images, truth = next(iter(batches))
        for i in range(6):
            labels = truth["labels"][i].numpy().tolist()
            assert labels[0] == i and i not in labels[1:]
            assert images[i, 0, 0, 0] == 10 * sum(labels)
            drawn.add(tuple(labels))
    assert len(drawn) > 12  # of 150 there could be
    assert truth["image_id"].numpy().tolist() == [1, 2, 3, 4, 5, 6]


def test_the_only_image_of_a_dataset_is_its_own_partner():
    _, truth = next(iter(grey_images(1).batches(1, **IN_ORDER, augment=Sum(2))))
    assert truth["labels"].numpy().tolist() == [[0, 0]]


def test_room_for_all_boxes_counts_the_partners():
    with pytest.raises(ValueError, match="3 or more.*max_boxes=2"):
        grey_images(4).batches(2, **IN_ORDER, augment=Sum(3), max_boxes=2)
    batches = grey_images(4).batches(2, **IN_ORDER, augment=Sum(3), max_boxes=3)
    assert {truth["boxes"].shape[1] for _, truth in batches} == {3}


# Errors before training starts


@pytest.mark.parametrize(
    "augment, error, message",
    [
        ("mosaic", TypeError, "'mosaic'"),
        (ek_augment.RandomApply, TypeError, "RandomApply"),
        ([brighter, 5], TypeError, "5"),
        ([brighter, Sum()], ValueError, "must be the first one"),
    ],
)
def test_what_is_no_augmentation_is_refused(augment, error, message):
    with pytest.raises(error, match=message):
        grey_images(2).batches(1, **IN_ORDER, augment=augment)


def test_augmentations_of_evaluation_are_refused():
    with pytest.raises(ValueError, match="`augment` .*`training=True`"):
        grey_images(2).batches(1, image_size=32, augment=brighter)


def wrong_keys(example, seed):
    return {"image": example["image"]}


def image_alone(example, seed):
    return example["image"]


def numpy_code(example, seed):
    return {**example, "image": np.sqrt(example["image"])}


@pytest.mark.parametrize(
    "function, message",
    [
        (wrong_keys, "'wrong_keys' failed.*must return a dict with"),
        (image_alone, "'image_alone' failed.*must return a dict with"),
        (numpy_code, "(?s)'numpy_code' failed.*test_augm.*ek.augment.FromNumPy"),
    ],
)
def test_a_function_that_cannot_be_right_is_named_at_once(function, message):
    with pytest.raises((ValueError, TypeError), match=message):
        grey_images(2).batches(1, **IN_ORDER, augment=[brighter, function])


# Errors of examples


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"image": np.zeros((8, 8))}, r"an image of shape \[8, 8\]"),
        ({"image": np.zeros((0, 8, 3))}, r"an image of shape \[0, 8, 3\]"),
        ({"boxes": np.zeros((2, 5))}, r"boxes of shape \(2, 5\)"),
        ({"boxes": np.ones((3, 4))}, r"3 boxes, but labels of shape \(1,\)"),
        ({"boxes": [[0, 0, np.nan, 9]]}, "boxes must be finite"),
        ({"boxes": [[9, 0, 5, 9]]}, r"\[9.0, 0.0, 5.0, 9.0\]; .*y_min, x_min"),
        ({"labels": [7]}, "the label 7; labels are from 0 to 1"),
        ({"labels": [-1]}, "the label -1"),
        ({"boxes": [[0.1, 0.1, 0.9, 1.0]]}, "pixels, not fractions"),
        ({}, None),
        ({"boxes": np.zeros((0, 4)), "labels": np.zeros(0)}, None),
        ({"boxes": [], "labels": []}, None),
        ({"boxes": [[-9, 0, 5, 99]]}, None),
        ({"boxes": [[0, 0, 1, 1]], "image": np.zeros((6, 6, 3))}, None),
    ],
)
def test_what_a_function_may_not_return(changes, message):
    example = {"image": np.zeros((32, 32, 3)), "boxes": [[4, 8, 20, 24]], "labels": [0]}
    example = {**example, **changes}
    shape, before = np.int32(example["image"].shape), np.int32([32, 32, 3])
    boxes, labels = np.float32(example["boxes"]), np.int32(example["labels"])
    fault = fault_of(shape, boxes, labels) or batches.fault_of_values(
        shape, boxes, labels, 2, before, boxes * 0 + 9
    )
    if message is None:
        assert fault is None
    else:
        assert re.search(message, fault)


class Lost(ek_augment.Augmentation):
    def augment(self, example, seed):
        return {**example, "labels": tf.fill(tf.shape(example["labels"]), 99)}


def grey(example, seed):
    image = tf.numpy_function(lambda x: x[..., 0], [example["image"]], tf.uint8)
    return {**example, "image": image}


def swapped(example, seed):
    # A shape that is not known before it runs.
    boxes = tf.numpy_function(lambda b: b[:, ::-1], [example["boxes"]], tf.float32)
    return {**example, "boxes": boxes}


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        (swapped, "'swapped' returned the box.*given image_id="),
        (
            ek_augment.RandomApply([swapped], 1.0),
            "'swapped' returned the box.*given image_id=",
        ),
        # Before TensorFlow complains.
        (grey, r"'grey' returned an image of shape \[32, 32\]"),
        ([Lost()], r"Lost\(\) returned the label 99"),
    ],
)
def test_a_wrong_example_names_the_function_and_the_image(augment, message):
    assert re.search(message, str(error_of(augment)))


def error_of(augment):
    batches = grey_images(2).batches(1, **IN_ORDER, augment=augment)
    with pytest.raises(tf.errors.OpError):
        list(batches)
    error = next(iter(find_image_readers(batches))).error
    assert isinstance(error, ValueError)
    return error


def fractions(image, boxes, labels, rng):
    return image, boxes / 32, labels


def test_what_a_numpy_function_returned_is_named_with_the_image():
    message = r"FromNumPy\(fractions\) returned .*not fractions. It was given image_id"
    assert re.search(message, str(error_of(ek_augment.FromNumPy(fractions))))


def test_a_users_code_may_ask_for_the_values_of_tensors():
    def darker_if_bright(example, seed):
        if tf.reduce_max(example["image"]) > 15:
            example = {**example, "image": example["image"] - 5}
        return example

    class Darker(ek_augment.Augmentation):
        def augment(self, example, seed):
            return darker_if_bright(example, seed)

    for augment in (darker_if_bright, Darker()):
        batches = grey_images(4).batches(4, **IN_ORDER, augment=augment)
        assert values(batches) == [[0], [10], [15], [25]]


def test_empty_examples_and_boxes_that_are_gone_are_fine():
    image = np.zeros((32, 32, 3), "uint8")
    dataset = from_arrays([image] * 2, [[], [[0, 0, 9, 9]]], [[], [0]], ["cat"])

    def nothing(example, seed):
        return {**example, "boxes": [], "labels": []}

    for augment in (brighter, nothing, Sum(2)):
        batches = dataset.batches(2, **IN_ORDER, augment=augment)
        assert [images.shape for images, _ in batches] == [(2, 32, 32, 3)]
