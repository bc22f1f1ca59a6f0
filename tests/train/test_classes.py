"""A model takes names and category ids from the dataset that it is trained on."""

import types

import numpy as np
import pytest

from effdet_keras.data import from_arrays
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.train.inputs import adopt_classes

CAT, DOG, KITE = "cat", "dog", "kite"


def dataset(names=(CAT, DOG), ids=(17, 18)):
    image = np.zeros((32, 32, 3), "uint8")
    images = from_arrays([image], [[[4, 4, 20, 20]]], [[0]], class_names=names)
    return images.with_classes(names, ids)


def model(names=None, ids=None, num_classes=2):
    return types.SimpleNamespace(
        class_names=names,
        category_ids=ids,
        num_classes=num_classes,
        config=EfficientDetConfig(num_classes=num_classes),
    )


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (model(), dataset(), ((CAT, DOG), (17, 18))),
        (model((CAT, DOG)), dataset(), ((CAT, DOG), (17, 18))),
        # What the model has is kept.
        (model(ids=(5, 6)), dataset(), (None, (5, 6))),
        (model((CAT, DOG), (5, 6)), dataset(), ((CAT, DOG), (5, 6))),
        # Other classes give nothing.
        (model((DOG, CAT)), dataset((CAT, KITE)), ((DOG, CAT), None)),
        (model(num_classes=3), dataset(), (None, None)),
        # A model of more classes counts on behind those of the dataset ...
        (
            model((CAT, DOG, KITE), num_classes=3),
            dataset(),
            ((CAT, DOG, KITE), (17, 18, 19)),
        ),
        # ... unless its labels have the right ids as they are.
        (
            model((CAT, DOG, KITE), num_classes=3),
            dataset(ids=(1, 2)),
            ((CAT, DOG, KITE), None),
        ),
    ],
)
def test_names_and_ids_are_taken_where_the_model_has_none(ours, theirs, expected):
    adopt_classes(ours, theirs)
    assert (ours.class_names, ours.category_ids) == expected


@pytest.mark.tensorflow
def test_batches_tell_the_ids_of_their_dataset():
    ours = model()
    adopt_classes(ours, dataset().batches(1, image_size=32).take(1).repeat())
    assert (ours.class_names, ours.category_ids) == ((CAT, DOG), (17, 18))
