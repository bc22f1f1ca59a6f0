"""AP of parts of a dataset: by hand, and against COCO's evaluation of each part."""

import dataclasses

import pytest
from support.image_results import (
    coco_numbers,
    image_result,
    of_one_class,
    random_results,
)

from effdet_keras.evaluate.curves import (
    Slice,
    slice_by_class_and_size,
    slice_by_column,
    slice_by_image_size,
)

NAMES = ["a", "b", "c"]


def numbers(row):
    return row.ap, row.ap50


def expected_numbers(results):
    found = coco_numbers(results, 3)
    return pytest.approx((found["AP"], found["AP50"]), abs=1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_each_class_has_cocos_ap(seed):
    results = random_results(seed)
    rows, _ = slice_by_class_and_size(results, NAMES)
    assert [row.name for row in rows] == NAMES
    for label, row in enumerate(rows):
        part = of_one_class(results, label)
        assert numbers(row) == expected_numbers(part)
        objects = [(~result.truth_is_crowd).sum() for result in part]
        assert row.num_objects == sum(objects)
        assert row.num_images == sum(count > 0 for count in objects)
    assert numbers(rows[2]) == (-1, -1)


@pytest.mark.parametrize("seed", range(2))
def test_the_sizes_of_coco_have_cocos_ap(seed):
    results = random_results(seed)
    _, rows = slice_by_class_and_size(results, NAMES)
    assert [row.name for row in rows] == [
        "under 32 px",
        "32 to 96 px",
        "96 px and more",
    ]
    coco = coco_numbers(results, 3)
    expected = [coco[name] for name in ("APs", "APm", "APl")]
    assert [row.ap for row in rows] == pytest.approx(expected, abs=1e-9)
    crowds = [result.truth_is_crowd.sum() for result in results]
    objects = [len(result.truth_labels) for result in results]
    assert sum(row.num_objects for row in rows) == sum(objects) - sum(crowds)


def test_objects_of_other_sizes_are_ignored_not_missed():
    one = image_result(
        [(0, 0, 0, 20, 20), (0, 100, 100, 150, 150)],
        [(0, 0.9, 100, 100, 150, 150), (0, 0.8, 0, 0, 20, 20)],
    )
    _, (small, medium, large) = slice_by_class_and_size([one], ["a"])
    assert small[:3] == ("under 32 px", 1, 1)
    assert numbers(small) == numbers(medium) == pytest.approx((1, 1))
    assert large == Slice("96 px and more", num_images=0, num_objects=0, ap=-1, ap50=-1)


def test_the_size_of_an_object_is_the_side_of_its_square():
    one = image_result([(0, 0, 0, 16, 60), (0, 0, 0, 16, 70)])
    _, (small, medium, _) = slice_by_class_and_size([one], ["a"])
    assert (small.num_objects, medium.num_objects) == (1, 1)


@pytest.mark.parametrize("seed", range(2))
def test_image_sizes_have_the_ap_of_images_with_that_longer_side(seed):
    sizes = [(100, 600), (600, 100), (200, 511), (1024, 3)]
    results = [
        dataclasses.replace(result, size=sizes[place % 4])
        for place, result in enumerate(random_results(seed))
    ]
    rows = slice_by_image_size(results, 3)
    assert [row.name for row in rows] == [
        *("under 512 px", "512 to 1024 px", "1024 px and more"),
    ]
    for row, longer in zip(rows, ((511,), (600,), (1024,))):
        part = [r for r in results if max(r.size) in longer]
        assert numbers(row) == expected_numbers(part)
        assert row.num_images == len(part) > 0


@pytest.mark.parametrize("seed", range(2))
def test_a_column_has_the_ap_of_its_images(seed):
    results = random_results(seed)
    column = {result.image_id: result.image_id % 3 for result in results}
    rows = slice_by_column(results, 3, {-1: "of another dataset", **column})
    assert sorted(row.name for row in rows) == ["0", "1", "2"]
    for row in rows:
        part = [r for r in results if str(r.image_id % 3) == row.name]
        assert numbers(row) == expected_numbers(part)
        assert row.num_images == len(part)
        objects = sum((~result.truth_is_crowd).sum() for result in part)
        assert row.num_objects == objects


def test_rows_stand_in_the_order_of_the_column():
    results = [image_result([], [], image_id=image_id) for image_id in (1, 2, 3)]
    column = {3: "night", 1: "day", 2: "night"}
    rows = slice_by_column(results, 3, column)
    assert [(row.name, row.num_images) for row in rows] == [("night", 2), ("day", 1)]


def test_no_images():
    assert slice_by_column([], 3, {1: "day"}) == []
    rows = sum(slice_by_class_and_size([], NAMES), slice_by_image_size([], 3))
    assert {(r.num_images, r.num_objects, r.ap, r.ap50) for r in rows} == {
        (0, 0, -1, -1)
    }


def test_an_image_without_a_value_is_refused():
    with pytest.raises(ValueError, match=r"Missing: 1 of 1 images, such as \[7\]"):
        slice_by_column([image_result([], [], image_id=7)], 3, {1: "day"})
