"""`DetectionDataset`: looking, dividing, and the batches it gives to `fit`."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from support.small_datasets import record_of, save_image

from effdet_keras.data import DetectionDataset, from_arrays
from effdet_keras.data.dataset import what_to_expect
from effdet_keras.data.problems import Problem
from effdet_keras.data.record import load_example

pytestmark = pytest.mark.tensorflow


def make_dataset(count=7, size=None):
    """Images of different sizes; image i has i % 3 boxes, label i % 2."""
    rng = np.random.default_rng(0)
    images, boxes, labels = [], [], []
    for i in range(count):
        height, width = size or rng.integers(20, 60, 2)
        images.append(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        boxes.append([[2, 3, 12 + i, 15 + i]] * (i % 3))
        labels.append([i % 2] * (i % 3))
    return from_arrays(images, boxes, labels, ("cat", "dog"))


def make_record(**changes):
    boxes = [[-5, 10, 20.25, 15], [10, 10, 0, 5], [0, 0, 50, 40]]
    fields = {"source_id": "seven", "area": [100.5, 0.0, 2000.0]}
    fields["is_crowd"] = [False, False, True]
    image = np.zeros((40, 50, 3), np.uint8)
    record = record_of(image, (40, 50), 7, boxes, [1, 0, 1], **fields)
    return dataclasses.replace(record, **changes)


def truth_of(batches):
    return [
        {key: value.numpy() for key, value in truth.items()} for _, truth in batches
    ]


# Examples


def test_example_holds_clipped_boxes_and_aligned_columns():
    example = DetectionDataset([make_record()], ("cat", "dog"))[0]
    assert example["image"].shape == (40, 50, 3)
    np.testing.assert_array_equal(
        example["boxes"], [[10, 0, 25, 15.25], [0, 0, 40, 50]]
    )
    assert example["boxes"].dtype == np.float32
    assert example["labels"].dtype == np.int32
    np.testing.assert_array_equal(example["labels"], [1, 1])
    np.testing.assert_array_equal(example["is_crowd"], [False, True])
    np.testing.assert_array_equal(example["area"], [100.5, 2000.0])
    assert example["image_id"] == 7 and example["source_id"] == "seven"


def test_image_of_another_size_than_annotated_is_an_error(tmp_path):
    path = save_image(tmp_path / "small.png", (25, 20))
    record = make_record(image=str(path))
    with pytest.raises(ValueError, match=r"\(40, 50\).*small\.png.*\(20, 25\)"):
        load_example(record)


# Looking and dividing


def test_slices_subsets_and_negative_indices():
    dataset = make_dataset(5)
    assert dataset[1:4].image_ids == (2, 3, 4)
    assert dataset.subset([4, 0]).image_ids == (5, 1)
    assert dataset[-1]["image_id"] == 5
    assert len(list(dataset)) == 5
    with pytest.raises(IndexError):
        dataset[5]


def test_split_keeps_every_image_once():
    dataset = make_dataset(10)
    first, second = dataset.split(0.3, seed=4)
    assert len(first) == 3 and len(second) == 7
    assert set(first.image_ids) | set(second.image_ids) == set(dataset.image_ids)
    assert list(first.image_ids) == sorted(first.image_ids)
    assert first.image_ids == dataset.split(0.3, seed=4)[0].image_ids
    assert first.image_ids != dataset.split(0.3, seed=5)[0].image_ids


@pytest.mark.parametrize("fraction", [0.0, 0.04, 1.0, 1.5, -1])
def test_split_into_nothing_is_an_error(fraction):
    with pytest.raises(ValueError, match="`fraction` must"):
        make_dataset(10).split(fraction)


def test_filter_classes_renumbers_labels_and_keeps_category_ids():
    dataset = DetectionDataset([make_record()], ("cat", "dog", "bird"), (3, 9, 27))
    dogs = dataset.filter(classes=["bird", "dog"])
    assert dogs.class_names == ("bird", "dog") and dogs.category_ids == (27, 9)
    np.testing.assert_array_equal(dogs[0]["labels"], [1, 1])
    np.testing.assert_array_equal(dogs[0]["area"], [100.5, 2000])
    ids = [a["category_id"] for a in dogs.to_coco()["annotations"]]
    assert ids == [9, 9]


def test_filter_keeps_images_without_objects_unless_asked():
    dataset = make_dataset(6).filter(classes=["cat"])
    assert len(dataset) == 6
    assert dataset.filter(lambda example: len(example["labels"])).image_ids == (3, 5)
    with pytest.raises(ValueError, match=r"cat.*\['horse'\]"):
        dataset.filter(classes=["horse"])


def test_summary_counts():
    records = [
        make_record(),
        make_record(image_id=8, image_size=(80, 60), area=[1024, 9215.9, 9216]),
        make_record(image_id=9).select(np.zeros(3, bool)),
    ]
    text = DetectionDataset(records, ("cat", "wild dog")).summary()
    assert text.splitlines() == [
        "3 images of 2 sizes, 40 to 80 high, 50 to 60 wide",
        "1 image without objects",
        "6 boxes: 2 small, 3 medium, 1 large "
        "(by area: below 32x32, below 96x96 pixels)",
        "2 of them crowd or difficult: not trained on",
        "class      boxes  images",
        "cat            2       2",
        "wild dog       4       2",
    ]


@pytest.mark.parametrize(
    "records, names, ids, message",
    [
        ([], (), None, "at least one class"),
        ([], ("cat", "cat"), None, "differ"),
        ([], ("cat", " "), None, "blank"),
        ([], ("cat", "dog"), (1, 1), "category_ids"),
        ([], ("cat", "dog"), (1,), "category_ids"),
        ([make_record(), make_record()], ("cat", "dog"), None, r"repeated=\[7\]"),
    ],
)
def test_inconsistent_datasets_are_errors(records, names, ids, message):
    with pytest.raises(ValueError, match=message):
        DetectionDataset(records, names, ids)


# Batches


def test_evaluation_gives_every_image_in_order():
    dataset = make_dataset(7)
    batches = dataset.batches(3, image_size=64)
    assert len(batches) == 3
    truth = truth_of(batches)
    ids = np.concatenate([t["image_id"] for t in truth])
    np.testing.assert_array_equal(ids, dataset.image_ids)
    assert ids.dtype == np.int64
    assert [t["boxes"].shape for t in truth] == [(3, 2, 4), (3, 2, 4), (1, 0, 4)]
    np.testing.assert_array_equal(truth[0]["labels"], [[-1, -1], [1, -1], [0, 0]])
    np.testing.assert_array_equal(truth[0]["boxes"][0], np.zeros((2, 4)))
    assert truth[0]["boxes"].dtype == np.float32
    assert truth[0]["labels"].dtype == np.int32


def test_crowd_boxes_are_in_no_loss_unless_they_are_objects():
    dataset = DetectionDataset([make_record()], ("cat", "dog"))
    objects = dataset.with_crowds_as_objects()
    for training in (False, True):
        options = {"image_size": 64, "training": training, "scale_jitter": (1, 1)}
        for given, count in ((dataset, 1), (objects, 2)):
            labels = truth_of(given.batches(1, **options))[0]["labels"]
            assert labels.shape == (1, count)
    assert dataset[0]["is_crowd"].any()


def test_padding_has_the_color_asked_for():
    dataset = from_arrays([np.zeros((10, 20, 3), np.uint8)], [[]], [[]], ["cat"])
    images, _ = next(iter(dataset.batches(1, image_size=20, pad_value=(1, 2, 3))))
    np.testing.assert_array_equal(images[0, :10], np.zeros((10, 20, 3)))
    np.testing.assert_array_equal(images[0, 10:] - [[[1, 2, 3]]], np.zeros((10, 20, 3)))


def fingerprint(batches):
    return [
        (truth["image_id"].numpy().tolist(), float(tf.reduce_sum(images)))
        for images, truth in batches
    ]


def test_same_seed_same_epochs_and_epochs_differ():
    dataset = make_dataset(12)

    def epochs(seed):
        batches = dataset.batches(4, image_size=32, training=True, seed=seed)
        return [fingerprint(batches) for _ in range(3)]

    first = epochs(5)
    assert first == epochs(5)
    assert first[0] != first[1] != first[2]
    assert first != epochs(6)


def test_draws_differ_in_an_epoch_between_epochs_and_seeds_though_the_image_is_one():
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    dataset = from_arrays([image] * 6, [[]] * 6, [[]] * 6, ["cat"])
    # Large, so that no two scales round to the same number of pixels.
    options = {"image_size": 256, "training": True, "shuffle": False}
    batches = dataset.batches(1, **options, seed=0)
    first, second = fingerprint(batches), fingerprint(batches)
    assert len({total for _, total in first}) == 6
    other_seed = fingerprint(dataset.batches(1, **options, seed=1))
    assert first != second and first != other_seed


def test_shuffle_can_be_turned_off_and_on():
    dataset = make_dataset(12)

    def ids(**options):
        batches = dataset.batches(3, image_size=32, seed=1, **options)
        return [i for batch, _ in fingerprint(batches) for i in batch]

    assert ids(training=True, shuffle=False) == list(dataset.image_ids)
    assert ids(shuffle=True) != list(dataset.image_ids)


def test_flip_probability_one_always_flips():
    dataset = make_dataset(6, size=(32, 32))
    options = {"image_size": 32, "training": True, "shuffle": False, "seed": 0}
    batches = dataset.batches(1, **options, flip_probability=1, scale_jitter=(1, 1))
    for position, (images, _) in enumerate(batches):
        np.testing.assert_array_equal(images[0], dataset[position]["image"][:, ::-1])


@pytest.mark.parametrize("target, scale", [(16, 0.5), ((8, 64), 0.25), (None, 1.0)])
def test_jitter_may_be_relative_to_another_size(target, scale):
    options = {"image_size": 32, "training": True, "target_size": target}
    batches = make_dataset(6, size=(32, 32)).batches(6, **options, scale_jitter=(1, 1))
    ((_, truth),) = batches
    np.testing.assert_array_equal(truth["image_scale"], np.full(6, 1 / scale))


def test_remainder_is_dropped_in_training_only_and_never_all():
    def length(batch_size, **options):
        return len(make_dataset(7).batches(batch_size, image_size=32, **options))

    assert length(3, training=True) == 2
    assert length(7, training=True) == 1
    assert length(8, training=True) == 1
    assert length(3, training=True, drop_remainder=False) == 3
    assert length(3, drop_remainder=True) == 2


def test_max_boxes_fixes_the_rows_and_refuses_to_lose_any():
    dataset = make_dataset(7)
    batches = dataset.batches(3, image_size=32, max_boxes=5)
    assert {t["boxes"].shape[1] for t in truth_of(batches)} == {5}
    assert batches.element_spec[1]["labels"].shape.as_list() == [None, 5]
    with pytest.raises(ValueError, match="2 or more.*max_boxes=1"):
        dataset.batches(3, max_boxes=1)


@pytest.mark.parametrize(
    "name, value",
    [
        ("batch_size", 0),
        ("batch_size", 2.5),
        ("image_size", (0, 8)),
        ("seed", -1),
        ("seed", 0.5),
        ("scale_jitter", (2, 1)),
        ("scale_jitter", 1.0),
        ("scale_jitter", (0.5, float("inf"))),
        ("flip_probability", 2),
        ("flip_probability", float("nan")),
        ("pad_value", (1, 2)),
        ("pad_value", (1.0, 2.0, float("nan"))),
    ],
)
def test_wrong_arguments_are_named(name, value):
    arguments = {"batch_size": 2, name: value}
    with pytest.raises(ValueError, match=f"`{name}`.*Received"):
        make_dataset().batches(**arguments)


# What to expect of few images, and of few boxes of a class


def dataset_of(num_images, names, labels):
    """A dataset whose images all have these labels."""
    images = [np.zeros((32, 32, 3), "uint8")] * num_images
    boxes = [[[4, 4, 20, 20]] * len(labels)] * num_images
    return from_arrays(images, boxes, [labels] * num_images, names)


def test_few_images_and_classes_of_few_boxes_are_named():
    first, second = what_to_expect(
        dataset_of(3, ["cat", "dog", "owl"], [0, 0, 0, 0, 1])
    )
    assert first.startswith("Only 3 images: expect AP to differ from one training")
    assert second.startswith("Fewer than 10 boxes of 'owl' (0), 'dog' (3): expect")


def test_forty_images_and_ten_boxes_are_enough():
    assert what_to_expect(dataset_of(40, ["cat"], [0])) == []
    (few_images,) = what_to_expect(dataset_of(39, ["cat"], [0]))
    assert "39 images" in few_images
    few_boxes = dataset_of(10, ["cat"], [0])
    assert len(what_to_expect(few_boxes)) == 1 < len(what_to_expect(few_boxes[:9]))


@pytest.mark.parametrize("label", [-1, 2])
@pytest.mark.parametrize(
    "use",
    [
        lambda dataset: dataset.with_classes(("cat", "dog")),  # as `fit` does
        lambda dataset: dataset.filter(classes=["dog"]),
        lambda dataset: dataset.to_coco(),
    ],
)
def test_a_label_without_a_class_is_an_error_and_not_the_last_class(use, label):
    dataset = DetectionDataset([make_record(labels=[1, label, 1])], ("cat", "dog"))
    message = rf"from 0 to 1. Received: image='image_id=7', labels=\[{label}\]"
    with pytest.raises(ValueError, match=message):
        use(dataset)


@pytest.mark.parametrize("label", [-1, 2])
@pytest.mark.parametrize("training", [False, True])
def test_a_label_of_no_class_is_refused_before_any_batch(label, training):
    record = make_record(labels=np.array([1, 0, label]), file_name="cat.png")
    dataset = DetectionDataset([record], ("cat", "dog"))
    with pytest.raises(ValueError, match=rf"cat\.png.*labels=\[{label}\]"):
        dataset.batches(1, image_size=32, training=training)


# Several datasets as one


def test_datasets_are_concatenated_by_the_names_of_their_classes():
    first = make_dataset(3).with_classes(("cat", "dog"), (4, 9))
    second = make_dataset(3).with_classes(("bird", "dog", "cat"), (4, 2, 1))
    both = first.concatenate(second)
    assert both.class_names == ("cat", "dog", "bird")
    assert both.category_ids == (4, 9, 10)  # the bird's 4 is taken
    assert both.image_ids == (1, 2, 3, 4, 5, 6)
    names = [
        [dataset.class_names[label] for label in example["labels"]]
        for dataset in (first, second, both)
        for example in dataset
    ]
    assert names[:6] == names[6:]
    for before, after in zip([*first, *second], both):
        np.testing.assert_array_equal(before["boxes"], after["boxes"])
        np.testing.assert_array_equal(before["image"], after["image"])
    ids = [annotation["id"] for annotation in both.to_coco()["annotations"]]
    assert len(ids) == len(set(ids)) == 6
    assert [len(x) for x in (first, second)] == [3, 3]  # as they were


def test_ids_that_are_unique_stay():
    records = make_dataset(4).records
    first, second = (
        DetectionDataset(part, ("cat", "dog")) for part in (records[3:], records[:2])
    )
    both = first.concatenate(second)
    assert both.image_ids == (4, 1, 2)
    ids = [record.annotation_ids.tolist() for record in both.records]
    assert ids == [r.annotation_ids.tolist() for r in (*records[3:], *records[:2])]


def test_masks_are_concatenated_where_their_classes_are_the_same():
    def masked(names, value):
        image = np.zeros((8, 8, 3), "uint8")
        record = record_of(image, (8, 8), 1, [[0, 0, 4, 4]], [0])
        record = dataclasses.replace(record, mask=np.full((8, 8), value, "uint8"))
        return DetectionDataset([record], ("cat",), seg_class_names=names)

    both = masked(("road", "sky"), 0).concatenate(masked(("road", "sky"), 1))
    assert both.seg_class_names == ("road", "sky")
    assert [example["mask"].max() for example in both] == [0, 1]
    with pytest.raises(ValueError, match="same classes of pixels.*'sea'"):
        masked(("road", "sky"), 0).concatenate(masked(("road", "sea"), 1))


def test_problems_of_all_are_kept_with_the_ids_of_their_images():
    problem = Problem("a.png", "bad box", "outside", (2,))
    first, second = make_dataset(2), make_dataset(2)
    second = DetectionDataset(second.records, ("cat", "dog"), problems=[problem])
    both = first.concatenate(second)
    assert both.problems == (dataclasses.replace(problem, image_ids=(4,)),)
    others = make_dataset(5)[2:]
    assert second.concatenate(others).problems == (problem,)
