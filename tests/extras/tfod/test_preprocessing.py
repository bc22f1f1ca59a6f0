"""The preprocessing steps of the Object Detection API."""

import numpy as np
import pytest
import tensorflow as tf

import effdet_keras as ek
from effdet_keras.augment import augmentation_of
from effdet_keras.extras.tfod.preprocessing import STEPS

pytestmark = pytest.mark.tensorflow

# Those that do nothing to a small image, or seldom anything, with their defaults.
LIVELY = {
    "random_rgb_to_gray": {"probability": 0.5},
    "adjust_gamma": {"gamma": 0.5},
    "random_downscale_to_target_pixels": {
        "min_target_pixels": 500,
        "max_target_pixels": 4000,
    },
    "random_absolute_pad_image": {"max_height_padding": 9, "max_width_padding": 9},
    "random_self_concat_image": {
        "concat_vertical_probability": 0.5,
        "concat_horizontal_probability": 0.5,
    },
}
ALWAYS_THE_SAME = ("rgb_to_gray", "adjust_gamma")


def step(name, **fields):
    return ek.augment.PreprocessingStep(name, **{**LIVELY.get(name, {}), **fields})


def example(height=60, width=80, count=3, dtype="uint8"):
    rng = np.random.default_rng(height)
    low = rng.uniform(0, 0.5, (count, 2))
    boxes = np.concatenate([low, low + rng.uniform(0.2, 0.5, (count, 2))], axis=1)
    return {
        "image": rng.integers(0, 256, (height, width, 3)).astype(dtype),
        "boxes": np.float32(boxes * [height, width, height, width]),
        "labels": np.arange(count, dtype="int32"),
    }


def of_color(color, height=60, width=80, dtype="float32"):
    """An image of one color with a box in its upper left quarter."""
    image = np.broadcast_to(np.asarray(color, dtype), (height, width, 3))
    boxes = np.float32([[0, 0, height / 2, width / 2]])
    return {"image": image, "boxes": boxes, "labels": np.int32([7])}


def same(a, b):
    keys = ("image", "boxes", "labels")
    return all(np.array_equal(np.asarray(a[x]), np.asarray(b[x])) for x in keys)


@pytest.mark.parametrize("name", STEPS)
def test_results_keep_the_contract(name):
    """As of every augmentation: tests/augment/test_augmentations.py."""
    augment, given = step(name), example()
    results = [augment(given, [5, i]) for i in range(8)]
    assert same(results[1], augment(given, [5, 1]))
    changes = any(not same(results[0], other) for other in results[1:])
    assert changes == (name not in ALWAYS_THE_SAME)
    for i, options in enumerate(({}, {"height": 1, "width": 1}, {"height": 2})):
        given = example(**options, count=0 if options else 3)
        result = augment(given, [2**40 + i, -i])
        boxes, size = result["boxes"].numpy(), result["image"].shape[:2]
        assert result["image"].dtype == "uint8" and min(size) > 0
        assert boxes.shape == (len(result["labels"]), 4)
        assert (boxes >= 0).all() and (boxes[:, 2:] > boxes[:, :2]).all()
        assert (boxes[:, 2:] <= size).all()
        as_float = {**given, "image": np.float32(given["image"])}
        as_float = augment(as_float, [2**40 + i, -i])["image"]
        assert as_float.dtype == "float32"
        # The rounding of a uint8 result.
        np.testing.assert_allclose(as_float, result["image"], atol=0.51)


def test_inside_a_dataset_they_do_what_they_do_outside():
    augments = [step(name) for name in STEPS]
    given = example()

    def augmented(index):
        image = tf.raw_ops.PlaceholderWithDefault(
            input=given["image"], shape=[None] * 3
        )
        one = {**given, "image": tf.ensure_shape(image, [None, None, 3])}
        results = [augment(one, tf.stack([5, index])) for augment in augments]
        return tuple((x["image"], x["boxes"], x["labels"]) for x in results)

    (results,) = tf.data.Dataset.range(1).map(augmented)
    for augment, (image, boxes, labels) in zip(augments, results):
        expected = augment(given, [5, 0])
        difference = image.numpy().astype(int) - expected["image"].numpy()
        assert np.abs(difference).max() <= 1, augment.step
        np.testing.assert_allclose(boxes, expected["boxes"], atol=1e-3)
        np.testing.assert_array_equal(labels, expected["labels"])


@pytest.mark.parametrize("name", [n for n in STEPS if "probability" in STEPS[n][1]])
def test_a_probability_of_zero_is_never_and_one_always(name):
    for i in range(8):
        assert same(step(name, probability=0.0)(example(), [3, i]), example())
        assert not same(step(name, probability=1.0)(example(), [3, i]), example())


@pytest.mark.parametrize("name", [n for n in STEPS if "random_coef" in STEPS[n][1]])
def test_random_coef_is_the_share_of_images_that_stay(name):
    alone = {"min_patch_size": 60} if "patch" in name else {}
    alone |= {"max_padded_size_ratio": (1.0, 1.0)} if "pad" in name else {}

    def changes(**fields):
        augment = step(name, **fields, **alone)
        return sum(not same(augment(example(), [3, i]), example()) for i in range(8))

    assert changes(random_coef=1.0) == 0
    assert changes() >= 6  # a crop may find no window but the whole


# Pixels, with numbers that can be worked out.


@pytest.mark.parametrize(
    ("name", "fields", "lowest", "highest"),
    [
        ("random_adjust_brightness", {"max_delta": 0.1}, 74.5, 125.5),
        ("random_pixel_value_scale", {"minval": 0.5, "maxval": 2.0}, 50.0, 200.0),
        ("adjust_gamma", {"gamma": 2.0, "gain": 0.5}, 19.6078, 19.6079),
        ("random_adjust_contrast", {}, 100.0, 100.0),
        ("random_adjust_hue", {"max_delta": 0.5}, 100.0, 100.0),
        ("random_adjust_saturation", {}, 100.0, 100.0),
        ("rgb_to_gray", {}, 99.98, 100.0),
    ],
)
def test_what_a_gray_becomes(name, fields, lowest, highest):
    images = [step(name, **fields)(of_color(100.0), [1, i])["image"] for i in range(20)]
    assert lowest - 1e-3 <= np.min(images) and np.max(images) <= highest + 1e-3
    if highest - lowest > 1:  # the whole range is drawn from
        assert np.max(images) - np.min(images) > 0.8 * (highest - lowest)


def test_colors_move_as_tensorflow_moves_them():
    given = of_color([200.0, 100.0, 50.0])

    def color(name, seed=2, **fields):
        return step(name, **fields)(given, [1, seed])["image"].numpy()[0, 0]

    weights = 200 * 0.2989 + 100 * 0.587 + 50 * 0.114
    np.testing.assert_allclose(color("rgb_to_gray"), [weights] * 3, rtol=1e-3)
    # Halfway from the color to the brightest of its channels.
    half = color("random_adjust_saturation", min_delta=0.5, max_delta=0.5)
    np.testing.assert_allclose(half, [200.0, 150.0, 125.0], rtol=1e-4)
    turned = [color("random_adjust_hue", i, max_delta=0.5) for i in range(20)]
    np.testing.assert_allclose(np.max(turned, axis=1), 200.0, rtol=1e-4)
    np.testing.assert_allclose(np.min(turned, axis=1), 50.0, rtol=1e-4)
    image = np.stack([np.full((4, 3), 100.0), np.full((4, 3), 140.0)])
    given = {**given, "image": image.astype("float32")}
    double = step("random_adjust_contrast", min_delta=2.0, max_delta=2.0)(given, [0, 1])
    np.testing.assert_allclose(double["image"][:, 0, 0], [80.0, 160.0], rtol=1e-5)


def test_black_patches_are_squares_of_their_size_and_number():
    given = of_color(200.0)
    for i in range(5):
        one = step("random_black_patches", max_black_patches=1, probability=1.0)
        rows, columns = np.nonzero(one(given, [2, i])["image"].numpy()[..., 0] == 0)
        assert len(rows) == 36 and np.ptp(rows) == np.ptp(columns) == 5
    ten = step("random_black_patches", probability=1.0)(given, [2, 0])["image"].numpy()
    assert 36 < (ten[..., 0] == 0).sum() <= 360


# Geometry beyond that boxes follow pixels, which test_boxes_follow_pixels has.


def test_flips_and_turns_by_hand():
    given = {**example(), "boxes": np.float32([[0, 10, 20, 40]]), "labels": [1]}
    image = given["image"]
    for name, pixels, box in (
        ("random_horizontal_flip", image[:, ::-1], [0, 40, 20, 70]),
        ("random_vertical_flip", image[::-1], [40, 10, 60, 40]),
        ("random_rotation90", np.rot90(image), [40, 0, 70, 20]),
    ):
        result = step(name, probability=1.0)(given, [0, 1])
        np.testing.assert_array_equal(result["image"], pixels)
        assert result["boxes"].numpy().tolist() == [box]


@pytest.mark.parametrize(
    ("axis", "size", "moved"),
    [
        ("vertical", (120, 80), [60, 0, 90, 40]),
        ("horizontal", (60, 160), [0, 80, 30, 120]),
    ],
)
def test_an_image_beside_itself_has_each_box_twice(axis, size, moved):
    fields = dict.fromkeys(LIVELY["random_self_concat_image"], 0.0)
    fields[f"concat_{axis}_probability"] = 1.0
    result = step("random_self_concat_image", **fields)(of_color(9.0), [0, 1])
    assert result["image"].shape[:2] == size
    assert result["boxes"].numpy().tolist() == [[0, 0, 30, 40], moved]
    assert result["labels"].numpy().tolist() == [7, 7]


def sizes(name, count=30, given=None, **fields):
    augment, given = step(name, **fields), given or of_color(9.0)
    return np.array([augment(given, [4, i])["image"].shape[:2] for i in range(count)])


def test_sizes_are_drawn_from_the_range_that_is_given():
    for name, fields, low, high in (
        ("random_pad_image", {}, (60, 80), (119, 159)),
        (
            "random_pad_image",
            {"min_image_height": 100, "max_image_height": 140, "max_image_width": 10},
            (100, 80),
            (139, 80),
        ),
        ("random_absolute_pad_image", {"max_width_padding": 0}, (60, 80), (68, 80)),
        ("random_image_scale", {}, (30, 40), (120, 160)),
        ("random_square_crop_by_scale", {}, (48, 48), (104, 104)),
        ("random_crop_to_aspect_ratio", {"aspect_ratio": 2.0}, (40, 80), (40, 80)),
        ("random_crop_to_aspect_ratio", {"aspect_ratio": 0.5}, (60, 30), (60, 30)),
        ("random_downscale_to_target_pixels", {}, (19, 25), (54, 73)),
        (
            "random_scale_crop_and_pad_to_square",
            {"output_size": 33},
            (33, 33),
            (33, 33),
        ),
    ):
        drawn = sizes(name, **fields)
        assert (drawn >= low).all() and (drawn <= high).all(), name
        far = (np.array(high) - low) * 0.6
        assert (np.ptp(drawn, axis=0) >= far).all(), name
    eight = {tuple(size) for size in sizes("random_square_crop_by_scale", 80)}
    assert eight == {(x, x) for x in (48, 56, 64, 72, 80, 88, 96, 104)}


def test_padding_has_the_mean_color_or_the_one_that_is_given():
    for fields, color in (({}, 50.0), ({"pad_color": [1, 2, 3]}, [1, 2, 3])):
        fields = {**fields, "min_image_height": 110, "min_image_width": 150}
        given = of_color(50.0)
        given["image"] = given["image"].copy()
        given["image"][0, :, :] += [[60.0]]  # one row of sixty: the mean is 51
        padded = step("random_pad_image", **fields)(given, [0, 3])["image"].numpy()
        corners = padded[[0, 0, -1, -1], [0, -1, 0, -1]]
        expected = color if fields.get("pad_color") else 51.0
        assert (np.abs(corners - expected) < 1e-3).all(axis=1).any()
    square = step("random_scale_crop_and_pad_to_square", scale_max=0.5)
    assert (square(of_color(50.0), [0, 1])["image"].numpy()[-1, -1] == 0).all()


def test_a_crop_has_the_area_the_shape_and_the_boxes_that_are_asked_for():
    given = example(200, 300, count=4)
    fields = {"min_area": 0.2, "max_area": 0.5, "min_object_covered": 0.9}
    for i in range(20):
        result = step("random_crop_image", overlap_thresh=0.6, **fields)(given, [1, i])
        height, width = result["image"].shape[:2]
        assert 0.19 <= height * width / 60000 <= 0.51 or (height, width) == (200, 300)
        assert 0.73 <= width / height <= 1.36 or (height, width) == (200, 300)
        sides = given["boxes"][:, 2:] - given["boxes"][:, :2]
        left = result["boxes"].numpy()
        shares = np.prod(left[:, 2:] - left[:, :2], axis=1)
        shares = shares / np.prod(sides[result["labels"].numpy()], axis=1)
        assert shares.min() >= 0.6 - 1e-5 and shares.max() >= 0.9 - 1e-2


def test_each_of_the_crops_of_ssd_is_chosen_and_no_other():
    narrow = {"min_aspect_ratio": 0.5, "max_aspect_ratio": 0.5, "random_coef": 0.0}
    wide = {"min_aspect_ratio": 2.0, "max_aspect_ratio": 2.0, "random_coef": 0.0}
    half = {"min_area": 0.2, "max_area": 0.4, "min_object_covered": 0.0}
    operations = [{**narrow, **half}, {**wide, **half}]
    drawn = sizes("ssd_random_crop", operations=operations, given=example(200, 200))
    ratios = drawn[:, 1] / drawn[:, 0]
    is_narrow, is_wide = np.abs(ratios - 0.5) < 0.03, np.abs(ratios - 2) < 0.06
    assert (is_narrow | is_wide).all() and 8 <= is_wide.sum() <= 22
    ratio = {"min_padded_size_ratio": [1.5, 2], "max_padded_size_ratio": [1.5, 2]}
    bigger = [{**operation, **ratio} for operation in operations]
    padded = sizes("ssd_random_crop_pad", operations=bigger, given=example(200, 200))
    assert {tuple(size) for size in padded} == {(300, 400)}


def test_crops_and_paddings_of_a_fixed_aspect_ratio_have_it():
    name = "ssd_random_crop_fixed_aspect_ratio"
    drawn = sizes(name, aspect_ratio=2.0, given=example(200, 200))
    np.testing.assert_allclose(drawn[:, 1] / drawn[:, 0], 2.0, rtol=0.05)
    whole = [
        {"random_coef": 1.0}
    ]  # 200 x 300 fits in 300 x 300, twice as large at most
    name = "ssd_random_crop_pad_fixed_aspect_ratio"
    drawn = sizes(name, operations=whole, given=example(200, 300))
    assert (drawn[:, 0] == drawn[:, 1]).all()
    assert 300 <= drawn.min() < 310 and 380 < drawn.max() <= 400


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("random_blur", {}, "must be one of 'random_pixel_value_scale'"),
        ("random_vertical_flip", {"propability": 1}, r"fields=\['propability'\]"),
        ("random_vertical_flip", {"probability": 50}, "from 0 to 1"),
        ("ssd_random_crop", {"operations": [{"area": 0.5}]}, r"fields=\['area'\]"),
    ],
)
def test_wrong_fields_are_refused(name, fields, message):
    with pytest.raises(ek.errors.InvalidValueError, match=message):
        ek.augment.PreprocessingStep(name, **fields)


def test_an_augmentation_is_made_of_its_name_and_arguments():
    assert augmentation_of("rotate").degrees == 15.0
    assert augmentation_of({"name": "rotate", "degrees": 5.0}).degrees == 5.0
    flip = augmentation_of({"name": "random_vertical_flip", "probability": 0.25})
    assert (flip.step, flip.parameters["probability"]) == ("random_vertical_flip", 0.25)
    for entry, message in (
        ("rotat", "There is no augmentation 'rotat'"),
        ({"degrees": 5.0}, "There is no augmentation None"),
        ({"name": "rotate", "angle": 5.0}, "'rotate' has no such arguments"),
        ({"name": "random_vertical_flip", "step": "a"}, "no such arguments"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            augmentation_of(entry)
