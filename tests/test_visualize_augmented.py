"""The grid of what training sees: rows are images, columns are draws."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from effdet_keras import augment, visualize  # noqa: E402
from effdet_keras.data import from_arrays  # noqa: E402

pytestmark = pytest.mark.tensorflow

STILL = {"image_size": 32, "flip_probability": 0, "scale_jitter": (1, 1)}


@pytest.fixture(scope="module")
def dataset():
    """Five images: number `i` has the grey value `20 * i` and one box."""
    images = [np.full((32, 32, 3), 20 * i, "uint8") for i in range(5)]
    return from_arrays(images, [[[8, 8, 32, 32]]] * 5, [[0]] * 5, ["cat"])


@pytest.fixture(scope="module")
def still(dataset):
    return visualize.augmented(dataset, images=3, repeats=2, **STILL)


def corners(grid, size=32, gap=4):
    """The grey value at the top left of each image of a grid."""
    return grid[:: size + gap, :: size + gap, 0].tolist()


def test_rows_are_images_and_columns_are_draws(still):
    assert still.dtype == np.uint8 and still.shape == (3 * 36 - 4, 2 * 36 - 4, 3)
    assert corners(still) == [[0, 0], [20, 20], [40, 40]]
    assert (still[32:36] == 255).all() and (still[:, 32:36] == 255).all()
    assert (still[12:30, 8] == visualize.class_color(0)).all()


@pytest.mark.parametrize(
    ("images", "expected"), [([4, 1], [[80], [20]]), (9, [[0], [20], [40], [60], [80]])]
)
def test_images_are_chosen_by_indices_or_a_number(dataset, images, expected):
    grid = visualize.augmented(dataset, images=images, repeats=1, **STILL)
    assert corners(grid) == expected


def test_augmentations_act_and_every_column_is_another_draw(dataset):
    def brighter(example, seed):
        added = tf.random.stateless_uniform([], seed, 0, 200, tf.int32)
        return {**example, "image": example["image"] + tf.cast(added, tf.uint8)}

    def drawn(seed):
        return visualize.augmented(
            dataset, brighter, images=2, repeats=4, seed=seed, **STILL
        )

    first = drawn(0)
    assert all(len(set(row)) == 4 for row in corners(first))
    np.testing.assert_array_equal(first, drawn(0))
    assert (first != drawn(1)).any()


def test_partners_come_from_the_whole_dataset(dataset):
    class Partner(augment.Augmentation):
        num_images = 2

        def augment(self, example, seed):
            return example[1]

    grid = visualize.augmented(dataset, Partner(), images=[2], repeats=12, **STILL)
    assert set(corners(grid)[0]) == {0, 20, 60, 80}


@pytest.mark.parametrize("images", [0, [1, 1]])
def test_wrong_arguments_are_named(dataset, images):
    with pytest.raises(ValueError, match="`images` must be|repeated"):
        visualize.augmented(dataset, images=images)
