"""What to expect of a training on few images, or few boxes of a class."""

import numpy as np

from effdet_keras.data import from_arrays
from effdet_keras.data.low_data import what_to_expect


def dataset(num_images, names, labels, **arguments):
    """A dataset whose images all have these labels."""
    images = [np.zeros((32, 32, 3), "uint8")] * num_images
    boxes = [[[4, 4, 20, 20]] * len(labels)] * num_images
    return from_arrays(images, boxes, [labels] * num_images, names, **arguments)


def test_few_images_and_classes_of_few_boxes_are_named():
    first, second = what_to_expect(dataset(3, ["cat", "dog", "owl"], [0, 0, 0, 0, 1]))
    assert first.startswith("Only 3 images: expect AP to differ from one training")
    assert second.startswith("Fewer than 10 boxes of 'owl' (0), 'dog' (3): expect")


def test_forty_images_and_ten_boxes_are_enough():
    assert what_to_expect(dataset(40, ["cat"], [0])) == []
    (few_images,) = what_to_expect(dataset(39, ["cat"], [0]))
    assert "39 images" in few_images
    few_boxes = dataset(10, ["cat"], [0])
    assert len(what_to_expect(few_boxes)) == 1 < len(what_to_expect(few_boxes[:9]))


def test_of_many_classes_five_are_named():
    names = [f"{k:02}" for k in range(30)]
    (only,) = what_to_expect(dataset(40, names, [0]))
    assert "'05' (0), 24 more" in only and "'06'" not in only
