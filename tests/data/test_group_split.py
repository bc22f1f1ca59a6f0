"""Dividing images: groups stay whole, classes get their share, and little moves."""

import numpy as np
import pytest
from support.clips import write_clip, write_photo
from support.small_datasets import record_of

from effdet_keras.data import DetectionDataset, from_arrays, load
from effdet_keras.data.group_split import _pieces, divide
from effdet_keras.data.near_duplicates import hash_images
from effdet_keras.data.split_groups import ImageGroups

NOISE = np.random.default_rng(0).integers(0, 256, (200, 8, 8, 3), dtype=np.uint8)


def dataset_of(labels, num_classes=3):
    """A dataset of unlike images, each with one box of each of its labels."""
    return from_arrays(
        NOISE[: len(labels)],
        [[[1, 1, 5, 5]] * len(row) for row in labels],
        labels,
        [f"class {i}" for i in range(num_classes)],
    )


def num_with(dataset, label):
    """How many images have a class."""
    return sum(label in record.labels for record in dataset.records)


def sides(dataset, groups):
    """For each group the parts, 0 and 1, that have images of it."""
    first, second = dataset
    found = {}
    for side, part in enumerate((first, second)):
        for image_id in part.image_ids:
            found.setdefault(groups[image_id - 1], set()).add(side)
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fraction", [0.2, 0.5, 0.8])
def test_unlike_images_are_divided_as_by_a_permutation(fraction, seed):
    """As before there were groups: the numbers of earlier runs stay."""
    dataset = dataset_of([[0]] * 60)
    order = np.random.default_rng(seed).permutation(60)
    expected = np.sort(order[: round(60 * fraction)]) + 1
    assert dataset.split(fraction, seed, groups="image")[0].image_ids == tuple(expected)
    assert dataset.split(fraction, seed)[0].image_ids == tuple(expected)


@pytest.mark.parametrize("seed", range(5))
def test_groups_stay_whole_and_the_parts_have_their_sizes(seed):
    random = np.random.default_rng(seed)
    groups = random.integers(0, 30, 120).tolist()
    dataset = dataset_of([[int(k)] for k in random.integers(0, 3, 120)])
    parts = dataset.split(0.75, seed, groups=groups)
    assert all(len(side) == 1 for side in sides(parts, groups).values())
    assert abs(len(parts[1]) - 30) <= 1
    for label in range(3):
        share = num_with(parts[1], label) / num_with(dataset, label)
        assert 0.15 <= share <= 0.35
    again = dataset.split(0.75, seed, groups=groups)
    assert again[0].image_ids == parts[0].image_ids


def test_another_seed_divides_groups_in_another_way():
    groups = [i // 5 for i in range(100)]
    dataset = dataset_of([[0]] * 100)
    found = {dataset.split(0.8, seed, groups=groups)[1].image_ids for seed in range(5)}
    assert len(found) > 2


@pytest.mark.parametrize("seed", range(20))
def test_a_rare_class_is_on_both_sides(seed):
    """Of five images one, where chance would leave the second part without a third."""
    rare = np.random.default_rng(seed).permutation(100)[:5]
    labels = [[0, 1] if i in rare else [0] for i in range(100)]
    second = dataset_of(labels, 2).split(0.8, seed)[1]
    assert 1 <= num_with(second, 1) <= 2
    assert len(second) == 20


@pytest.mark.parametrize("seed", range(20))
def test_the_only_image_of_a_class_is_in_the_larger_part(seed):
    labels = [[0]] * 29 + [[0, 1]]
    first, second = dataset_of(labels, 2).split(0.8, seed)
    assert num_with(first, 1) == 1 and len(second) == 6
    assert num_with(dataset_of(labels, 2).split(0.2, seed)[1], 1) == 1


def test_what_chance_did_well_stays():
    """Where chance left out a rare class, two images change their sides, else none."""
    rare = set(range(1, 6))
    dataset = dataset_of([[0, 1] if i < 5 else [0] for i in range(100)], 2)
    seen = set()
    for seed in range(20):
        at_random = set(dataset.split(0.8, seed, groups="image")[1].image_ids)
        moved = at_random ^ set(dataset.split(0.8, seed)[1].image_ids)
        number = len(at_random & rare)
        seen.add(number)
        assert len(moved) == {0: 2, 1: 0, 2: 0}.get(number, 2 * (number - 2))
    assert {0, 1, 2} <= seen


def test_labels_without_a_class_do_not_count():
    records = [record_of(NOISE[i], (8, 8), i, [[0, 0, 4, 4]], [-1]) for i in range(10)]
    division = divide(records, 1, ImageGroups(np.arange(10)), 8, seed=0)
    assert division.in_second.sum() == 2


def clips(folder, *lengths, **options):
    for k, length in enumerate(lengths):
        write_clip(folder, f"clip{k}", seed=k, num_frames=length, **options)
    (folder / "classes.txt").write_text("cat\ndog\n")
    return load(folder)


def clips_of(dataset):
    return {record.file_name.split("_")[0] for record in dataset.records}


@pytest.mark.parametrize("seed", range(5))
def test_two_clips_are_kept_apart(tmp_path, capsys, seed):
    """However small the second part should be: a part of a clip in it says nothing."""
    first, second = clips(tmp_path, 30, 30).split(0.8, seed)
    assert not clips_of(first) & clips_of(second)
    text = capsys.readouterr().out
    assert "2 groups of images that look alike (60 images): each stays" in text
    assert "cut" not in text


def test_a_single_clip_is_cut_once_and_the_text_says_so(tmp_path, capsys):
    """The parts touch at two places at most, not at every third frame."""
    first, second = clips(tmp_path, 40).split(0.8)
    assert len(second) == pytest.approx(8, abs=3)
    side = [
        record.file_name in {r.file_name for r in second.records}
        for record in sorted(
            [*first.records, *second.records], key=lambda r: r.file_name
        )
    ]
    assert 1 <= np.abs(np.diff(np.array(side, int))).sum() <= 2
    assert "1 of them had to be cut" in capsys.readouterr().out


@pytest.mark.parametrize(("length", "fraction"), [(4, 0.8), (7, 0.8), (12, 0.9)])
def test_a_clip_of_a_few_frames_is_cut_as_well(tmp_path, length, fraction):
    first, second = clips(tmp_path, length).split(fraction)
    assert len(second) == max(round(length * (1 - fraction)), 1)
    assert len(first) + len(second) == length


@pytest.mark.parametrize("share", [0.02, 0.1, 0.2, 0.34, 0.5])
@pytest.mark.parametrize("brightest", [0, -1])
def test_no_piece_of_a_group_is_empty(share, brightest):
    """The largest change is beside the first or the last image: cuts run into it."""
    for length in range(2, 60):
        images = [np.full((8, 8, 3), 60, np.uint8) for _ in range(length)]
        images[brightest] = NOISE[0]
        records = from_arrays(images, [[]] * length, [[]] * length, ["cat"]).records
        pieces = _pieces(np.arange(length), records, hash_images(records), share)
        assert np.concatenate(pieces).tolist() == list(range(length))
        assert len(pieces) == min(max(round(1 / share), 2), length)
        assert all(len(piece) for piece in pieces)


def test_a_clip_that_has_all_images_of_a_class_is_cut(tmp_path, capsys):
    """A detector that never saw the class would be judged on it, or never judged."""
    for k in range(40):
        write_photo(tmp_path / f"photo{k}x.jpg", seed=100 + k)
    write_clip(tmp_path, "clip", seed=0, num_frames=20, classes=(1,))
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    first, second = load(tmp_path).split(0.8)
    assert num_with(first, 1) >= 10 and num_with(second, 1) >= 2
    assert "1 of them had to be cut" in capsys.readouterr().out


def test_a_pair_that_has_all_images_of_a_class_is_learned_from(tmp_path, capsys):
    """Copies are never parted."""
    paths = [write_photo(tmp_path / f"photo{k}x.jpg", seed=k) for k in range(18)]
    for name in ("rare-a.jpg", "rare-b.jpg"):
        write_photo(tmp_path / name, seed=50, classes=(0, 1))
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    dataset = load(tmp_path)
    assert len(dataset) == len(paths) + 2
    for seed in range(5):
        first, second = dataset.split(0.8, seed)
        assert num_with(first, 1) == 2 and num_with(second, 1) == 0
        assert len(second) == 4


def test_groups_of_the_caller_are_never_cut(capsys):
    dataset = dataset_of([[0]] * 30 + [[1]] * 30, 2)
    groups = ["a"] * 30 + ["b"] * 30
    first, second = dataset.split(0.9, groups=groups)
    assert len(first) == len(second) == 30
    assert "One part has no image of 'class 0', 'class 1'" in capsys.readouterr().out
    with pytest.raises(ValueError, match="`groups` must make two groups or more"):
        dataset.split(0.9, groups=["a"] * 60)


def test_images_that_are_not_there_are_divided_as_before(tmp_path):
    records = [record_of(tmp_path / f"a_{i}.jpg", (8, 8), i) for i in range(10)]
    dataset = DetectionDataset(records, ["cat"])
    expected = dataset.split(0.7, groups="image")[0].image_ids
    assert dataset.split(0.7)[0].image_ids == expected
