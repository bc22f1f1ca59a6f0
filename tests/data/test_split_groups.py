"""Which images belong together: near-duplicates, recordings, folders, names."""

import numpy as np
import pytest
from support.clips import photo, write_clip, write_photo
from support.small_datasets import record_of

from effdet_keras.data.split_groups import (
    image_groups,
    source_names,
    stem_and_number,
)


def records_of(paths):
    return [
        record_of(path, (90, 120), i, file_name=path.name)
        for i, path in enumerate(paths)
    ]


def members(records, groups="auto"):
    """The names in each group of two images or more."""
    found = image_groups(records, groups).groups
    names = np.array([record.file_name for record in records])
    return [names[found == k].tolist() for k in np.unique(found) if sum(found == k) > 1]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("clip_a_0042.jpg", ("clip_a", 42)),
        ("street/clip (7).png", ("clip", 7)),
        ("C:\\data\\frame12.bmp", ("frame", 12)),
        ("0007.jpg", ("", 7)),
        ("garden.jpg", ("garden", None)),
        ("clip-3_jpg.rf.0cc175b9c0f1b6a831c399e269772661.jpg", ("clip", 3)),
        ("a1b2c3d4-clip_003.jpg", ("clip", 3)),
    ],
)
def test_the_stem_of_a_name(name, expected):
    assert stem_and_number(*source_names([name])) == expected


def test_a_prefix_that_repeats_or_is_a_number_is_not_label_studios():
    """It draws eight hex digits for each image, and never the same again."""
    frames = ["a1b2c3d4-001", "a1b2c3d4-002", "20230101-1", "20230102-1"]
    assert source_names([f"{frame}.jpg" for frame in frames]) == frames
    copies = [f"a1b2c3d4-x_jpg.rf.{digit * 32}.jpg" for digit in "ab"]
    assert source_names([*copies, "b1b2c3d4-x.jpg"]) == ["x", "x", "x"]


@pytest.mark.parametrize("days", [("20230101", "20230102"), ("a1b2c3d4", "f1b2c3d4")])
def test_recordings_of_which_the_date_is_in_front(tmp_path, days):
    """Frame 3 of one day and frame 3 of the next are no copies of one image."""
    recordings = [
        [
            path.rename(tmp_path / f"{day}-{number:03d}.jpg")
            for number, path in enumerate(write_clip(tmp_path, "x", seed, 10, step=7))
        ]
        for seed, day in enumerate(days)
    ]
    found = members(records_of([*recordings[0], *recordings[1]]))
    assert found == [[path.name for path in paths] for paths in recordings]


def test_frames_of_two_clips_are_two_groups_however_fast_they_move(tmp_path):
    """A step of 6 % of the width is no near-duplicate: the names say the rest."""
    first = write_clip(tmp_path, "a", seed=0, num_frames=10, step=7)
    second = write_clip(tmp_path, "b", seed=1, num_frames=10, step=7)
    others = [write_photo(tmp_path / f"photo-{k}x.jpg", seed=10 + k) for k in range(3)]
    records = records_of([*first, *second, *others])
    assert members(records, "hash") != [
        [p.name for p in first],
        [p.name for p in second],
    ]
    assert members(records) == [[p.name for p in first], [p.name for p in second]]


def test_numbered_photos_of_each_class_are_no_recordings(tmp_path):
    """`cat_1`, `cat_2`, ... are unlike: names alone do not keep them together."""
    names = [f"{kind}_{i}.jpg" for kind in ("cat", "dog") for i in range(6)]
    paths = [write_photo(tmp_path / name, seed=k) for k, name in enumerate(names)]
    assert members(records_of(paths)) == []
    assert members(records_of(paths), "name") == [names[:6], names[6:]]


def test_a_numbering_of_the_whole_dataset_is_no_recording(tmp_path):
    """But in it scenes are: frames that look like their neighbours."""
    scenes = [
        write_clip(tmp_path / str(k), "x", k, num_frames=6, step=7) for k in (0, 1)
    ]
    paths = []
    for number, path in enumerate([*scenes[0], *scenes[1]]):
        paths.append(path.rename(tmp_path / f"img_{number:03d}.jpg"))
    names = [path.name for path in paths]
    assert members(records_of(paths)) == [names[:6], names[6:]]
    photos = [write_photo(tmp_path / f"photo_{k}.jpg", seed=20 + k) for k in range(8)]
    assert members(records_of(photos)) == []


def test_the_augmented_copies_of_an_image_stay_together(tmp_path):
    """Roboflow writes each image several times, mirrored or darker, in its versions."""
    image, paths = photo(0, 120, 90), []
    for digit in "ab":
        path = tmp_path / f"garden_jpg.rf.{digit * 32}.jpg"
        image.save(path)
        paths.append(path)
        image = image.rotate(180)
    assert members(records_of(paths), "hash") == []
    assert members(records_of(paths)) == [[path.name for path in paths]]


def test_groups_by_folder_value_or_function(tmp_path):
    paths = [tmp_path / f"day{k // 2}" / f"{k}.jpg" for k in range(4)]
    records = records_of(paths)
    expected = [["0.jpg", "1.jpg"], ["2.jpg", "3.jpg"]]
    assert members(records, "folder") == expected
    assert members(records, ["x", "x", None, None]) == expected
    assert members(records, np.array([3, 3, 1, 1])) == expected
    assert members(records, lambda example: example["image_id"] // 2) == expected
    assert members(records, "image") == []


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ("clip", ValueError, "`groups` must be one of 'auto', 'image', 'folder'"),
        (["a"], ValueError, "one value per image.*1 values for 2 images"),
        ([["a"], ["b"]], TypeError, r"the key of a dict.*\['a'\]"),
    ],
)
def test_groups_that_cannot_be_right_are_refused(groups, error, message):
    records = [record_of(np.zeros((8, 8, 3), np.uint8), (8, 8), i) for i in range(2)]
    with pytest.raises(error, match=message):
        image_groups(records, groups)
