"""What holds for every augmentation, and what each one does."""

import numpy as np
import pytest
import tensorflow as tf

import effdet_keras as ek
from effdet_keras.augment.augmentation import as_augmentation
from effdet_keras.extras import policies as policy_run

pytestmark = pytest.mark.tensorflow

OTHERS = {
    "sometimes mosaic": ek.augment.RandomApply(ek.augment.Mosaic(), 0.5),
    "list": ek.augment.Compose([ek.augment.MixUp(), ek.augment.RandomCrop()]),
    "numpy": ek.augment.FromNumPy(
        lambda image, boxes, labels, rng: (
            image[:, :, [2, 0, 1]] // rng.integers(2, 9).astype("uint8"),
            boxes[:1],
            labels[:1],
        )
    ),
}
NAMED = {name: make() for name, make in ek.augment.NAMES.items()}
# Policies differ in a table alone, which is compared with the reference's.
ALL = {
    name: augment
    for name, augment in {**NAMED, **OTHERS}.items()
    if name not in ("auto_augment_v0", "auto_augment_v2")
}


def example(seed=0, height=60, width=80, count=4, dtype="uint8"):
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 0.6, (count, 2))
    boxes = np.concatenate([low, low + rng.uniform(0.1, 0.4, (count, 2))], axis=1)
    image = rng.integers(0, 256, (height, width, 3))
    return {
        "image": image.astype(dtype),
        "boxes": np.float32(boxes * [height, width, height, width]),
        "labels": rng.integers(0, 9, count).astype("int32"),
        "image_id": 7,
    }


def examples(augment, **options):
    if augment.num_images == 1:
        return example(**options)
    return [example(i, **options) for i in range(augment.num_images)]


def same(a, b):
    keys = ("image", "boxes", "labels")
    return all(np.array_equal(np.asarray(a[x]), np.asarray(b[x])) for x in keys)


@pytest.mark.parametrize("name", ALL)
def test_results_keep_the_contract(name):
    """A seed repeats a result, another changes it, and boxes lie in the image."""
    augment = ALL[name]
    given = examples(augment)
    results = [augment(given, [5, i]) for i in range(4)]
    assert same(results[1], augment(given, [5, 1]))
    assert any(not same(results[0], other) for other in results[1:])
    for i in range(2):
        result = augment(given, [2**40 + i, -i])
        image, boxes = result["image"].numpy(), result["boxes"].numpy()
        labels = result["labels"].numpy()
        assert image.dtype == "uint8" and image.ndim == 3
        assert boxes.dtype == "float32" and labels.dtype == "int32"
        assert boxes.shape == (len(labels), 4)
        assert (boxes >= 0).all() and (boxes[:, 2:] > boxes[:, :2]).all()
        assert (boxes[:, 2:] <= image.shape[:2]).all()
        assert result["image_id"] == 7


@pytest.mark.parametrize("name", ALL)
def test_images_without_boxes_and_of_one_pixel_pass(name):
    augment = ALL[name]
    for i, options in enumerate(({"height": 1, "width": 1}, {"height": 2}, {})):
        result = augment(examples(augment, count=0, **options), [5, i])
        assert result["boxes"].shape == (0, 4) and result["labels"].shape == (0,)
        assert min(result["image"].shape) > 0


# Each takes a second to trace. These have the operations of the others, too.
GRAPHS = ["auto_augment_v1", "sometimes mosaic", "list", "rotate", "blur", "jpeg_noise"]
GRAPHS += ["photometric_distortion", "cut_out", "grid_mask", "numpy"]


@pytest.mark.parametrize("name", GRAPHS)
def test_inside_a_dataset_it_does_what_it_does_outside(name):
    augment = ALL[name]
    given = examples(augment)

    def augmented(index):
        # Sizes are not known before an image is read.
        opened = tf.nest.map_structure(of_any_size, given)
        result = augment(opened, tf.stack([5, index]))
        return result["image"], result["boxes"], result["labels"]

    dataset = tf.data.Dataset.range(2).map(augmented)
    assert dataset.element_spec[0].shape.as_list() == [None, None, 3]
    assert dataset.element_spec[1].shape.as_list() == [None, 4]
    for index, (image, boxes, labels) in enumerate(dataset):
        expected = augment(given, [5, index])
        # A graph may round another way than single operations do.
        difference = image.numpy().astype(int) - expected["image"].numpy()
        assert np.abs(difference).max() <= 1
        np.testing.assert_allclose(boxes, expected["boxes"], atol=1e-3)
        np.testing.assert_array_equal(labels, expected["labels"])


def of_any_size(value):
    tensor = tf.convert_to_tensor(value)
    shape = tf.TensorShape([None] * tensor.shape.rank)
    opened = tf.raw_ops.PlaceholderWithDefault(input=tensor, shape=shape)
    if tensor.shape.rank == 3:
        opened.set_shape([None, None, 3])
    return opened


# Lists, chance, functions of users


def brighter(example, seed):
    return {**example, "image": example["image"] // 2 + 100}


def test_sometimes_is_as_often_as_it_says():
    augment = ek.augment.RandomApply(brighter, 0.3)
    given = example(height=2, width=2)
    changed = [not same(augment(given, [3, i]), given) for i in range(60)]
    assert 10 < sum(changed) < 27
    for probability, expected in ((0.0, False), (1.0, True)):
        augment = ek.augment.RandomApply(brighter, probability)
        assert all(
            (not same(augment(given, [3, i]), given)) == expected for i in range(5)
        )


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda image, boxes, labels: (image / 1.0, boxes, labels), "uint8"),
        (lambda image, boxes, labels: (image, boxes, labels[:1]), "one label"),
    ],
)
def test_a_wrong_function_of_arrays_is_told_apart(change, message):
    def wrong(image, boxes, labels, rng):
        return change(image, boxes, labels)

    augment = ek.augment.FromNumPy(wrong)
    with pytest.raises(Exception, match=f"(?s)wrong.*{message}"):
        augment(example(), [0, 1])


# Each by itself


def apply_policy(steps, given, seed, long_side=None):
    class Owner:
        min_visibility, reference_boxes = 0.1, False

    Owner.long_side = long_side
    given = {**given, "image": tf.constant(given["image"])}
    return policy_run.run_sub_policy(given, seed, [steps], tf.constant(0), Owner)


def test_steps_of_probability_zero_never_happen_and_of_one_always():
    given = example()
    for i in range(8):
        off = [("Rotate_BBox", 0.0, 10), ("Flip_Only_BBoxes", 0.0, 10)]
        assert same(apply_policy(off, given, [1, i]), given)
        on = apply_policy([("Solarize", 1.0, 0)], given, [1, i])["image"]
        np.testing.assert_array_equal(on, 255 - given["image"])


@pytest.mark.parametrize("name", ("Flip", "Cutout", "Equalize", "TranslateY", "Rotate"))
def test_operations_inside_boxes_change_nothing_outside(name):
    given = example()
    given["boxes"] = np.float32([[10.5, 20.5, 39.5, 59.5]])
    changed = 0
    for i in range(12):
        result = apply_policy([(f"{name}_Only_BBoxes", 1.0, 10)], given, [1, i])
        np.testing.assert_array_equal(result["boxes"], given["boxes"])
        difference = (result["image"].numpy() != given["image"]).any(axis=2)
        changed += difference.any()
        difference[10:40, 20:60] = False
        assert not difference.any()
    assert 1 <= changed <= 10  # a third of the probability


def test_a_cutout_in_a_box_hides_its_share():
    given = {**example(), "image": np.zeros((60, 80, 3), "uint8")}
    given["boxes"] = np.float32([[10, 20, 50, 60]])
    for i in range(6):
        image = apply_policy([("BBox_Cutout", 1.0, 10)], given, [1, i])["image"].numpy()
        rows, columns = np.nonzero(image[..., 0] == 128)
        assert 15 <= np.ptp(rows) + 1 <= 30 and 15 <= np.ptp(columns) + 1 <= 30
        assert 10 <= rows.mean() <= 50 and 20 <= columns.mean() <= 60


def test_distances_fit_the_size_of_the_image():
    """250 pixels of 640 are a share of the side, for whom has small images."""
    given = {**example(), "image": np.zeros((60, 128, 3), "uint8")}
    steps = [("TranslateX_BBox", 1.0, 10)]
    image = apply_policy(steps, given, [1, 0], long_side=640.0)["image"].numpy()
    assert (image == 128).all(axis=(0, 2)).sum() == 50
    image = apply_policy(steps, given, [1, 0])["image"].numpy()
    assert (image == 128).all()


def test_boxes_that_leave_the_image_are_gone_or_strips():
    given = {**example(count=1), "boxes": np.float32([[0, 0, 60, 8]])}
    gone = 0
    for i in range(20):
        exact, strips = (
            ek.augment.RandAugment(1, 10.0, reference_boxes=x)(given, [1, i])["boxes"]
            for x in (False, True)
        )
        assert len(strips) == 1
        gone += len(exact) == 0
    assert 1 <= gone < 10


def test_a_crop_shows_an_object_well_and_drops_what_is_hardly_seen():
    augment = ek.augment.RandomCrop(
        area=(0.1, 0.4), min_covered=0.9, min_visibility=0.5
    )
    for i in range(20):
        given = {**example(i), "labels": np.arange(4, dtype="int32")}
        result = augment(given, [1, i])
        sides = given["boxes"][:, 2:] - given["boxes"][:, :2]
        left = result["boxes"].numpy()
        shares = np.prod(left[:, 2:] - left[:, :2], 1)
        shares = shares / np.prod(sides[result["labels"].numpy()], axis=1)
        assert shares.max() >= 0.9 - 1e-5
        assert shares.min() >= 0.5 - 1e-5


def test_a_crop_that_finds_no_object_leaves_the_image_whole():
    augment = ek.augment.RandomCrop(area=(0.1, 0.2), min_covered=1.0)
    given = {**example(count=1), "boxes": np.float32([[0, 0, 60, 80]])}
    assert same(augment(given, [0, 1]), given)


def test_a_cutout_drops_the_boxes_that_it_hides():
    augment = ek.augment.CutOut(1, size=(1.0, 1.0))
    assert len(augment(example(), [0, 1])["boxes"]) == 0
    augment = ek.augment.CutOut(1, size=(0.0, 0.0))
    assert same(augment(example(), [0, 1]), example())


def test_a_grid_hides_the_squares_that_it_says():
    given = {**example(), "image": np.zeros((300, 300, 3), "uint8")}
    for ratio in (0.3, 0.7):
        augment = ek.augment.GridMask(ratio, period=(0.1, 0.1))
        hidden = (augment(given, [0, 1])["image"].numpy() == 128).mean()
        assert hidden == pytest.approx((1 - ratio) ** 2, abs=0.03)


def test_distortion_keeps_grays_gray_and_zero_changes_nothing():
    augment = ek.augment.PhotometricDistortion(0.0, 0.0, 0.0, 0.0)
    assert same(augment(example(), [0, 1]), example())
    augment = ek.augment.PhotometricDistortion(0.0, 0.0, 1.0, 180.0)
    given = {**example(), "image": np.full((60, 80, 3), 77, "uint8")}
    assert same(augment(given, [0, 1]), given)
    augment = ek.augment.PhotometricDistortion(40.0, 0.0, 0.0, 0.0)
    values = {int(augment(given, [0, i])["image"][0, 0, 0]) for i in range(20)}
    assert min(values) < 60 and max(values) > 94 and all(37 <= x <= 117 for x in values)


def test_blur_keeps_what_is_even_up_to_the_border():
    given = {**example(), "image": np.full((60, 80, 3), 200, "uint8")}
    assert same(ek.augment.Blur((2.0, 2.0))(given, [0, 1]), given)
    noise = ek.augment.Blur((2.0, 2.0))(example(), [0, 1])["image"].numpy()
    assert noise.std() < example()["image"].std() / 3


@pytest.mark.smoke
def test_jpeg_of_low_quality_is_further_off():
    image = np.tile(np.arange(0, 160, 2, dtype="uint8")[None, :, None], (60, 1, 3))
    given = {**example(), "image": image}
    errors = []
    for quality in (100, 50, 5):
        augment = ek.augment.JPEGNoise((quality, quality))
        result = augment(given, [0, 1])["image"].numpy()
        errors.append(np.abs(result - 1.0 * image).mean())
    assert errors[0] < errors[1] < errors[2]


def test_arguments_out_of_range_are_refused():
    at = ek.augment
    wrong = [(at.AutoAugment, "v4"), (at.RandAugment, 0), (at.RandAugment, 1, -1.0)]
    wrong += [(at.Rotate, -1.0), (at.Shear, 1.0), (at.CutOut, 0), (at.GridMask, 1.0)]
    wrong += [(at.MixUp, 0.6), (at.JPEGNoise, (0, 50)), (at.RandomApply, brighter, 1.5)]
    cases = [(kind, arguments, {}) for kind, *arguments in wrong]
    cases += [(at.AutoAugment, ["v0"], {"long_side": 0})]
    cases += [(at.CutOut, [], {"size": (0.5, 0.2)})]
    cases += [(at.PhotometricDistortion, [], {"contrast": 1.5})]
    cases += [(at.RandomCrop, [], x) for x in ({"area": (0.0, 1.0)}, {"tries": 0})]
    cases += [(at.Mosaic, [], {"zoom": (0.5, 1.0)})]
    for kind, arguments, named in cases:
        with pytest.raises(ek.errors.InvalidValueError, match="Received: "):
            kind(*arguments, **named)
    with pytest.raises(ek.errors.InvalidTypeError, match="Received: <class"):
        as_augmentation(ek.augment.Blur)
