"""`inspect` names images that look alike, within a split and across splits."""

import pathlib
import shutil

import pytest
from support.clips import write_clip, write_photo

from effdet_keras import cli, data
from effdet_keras.extras.data_check import check as check_module
from effdet_keras.extras.data_check.check import check_splits
from effdet_keras.extras.data_check.report import html_of


@pytest.fixture
def two_splits(tmp_path):
    """YOLO data: a clip of five frames of which two are in `val`, and other photos."""
    for seed in range(10, 16):
        split = "train" if seed < 13 else "val"
        write_photo(tmp_path / split / f"photo{seed}x.jpg", seed=seed)
    paths = write_clip(tmp_path / "train", "clip", seed=1, num_frames=5)
    for path in paths[3:]:
        shutil.move(path, tmp_path / "val")
        shutil.move(path.with_suffix(".txt"), tmp_path / "val")
    layout = "train: train\nval: val\nnames: [cat]\n"
    (tmp_path / "data.yaml").write_text(layout)
    return tmp_path


def named(report, kind):
    return [(p.file, p.detail) for p in report.problems if p.kind == kind]


def test_near_duplicates_are_one_problem_for_each_group(two_splits):
    reports = check_splits(two_splits, model=None)
    assert named(reports["train"], "near-duplicate image") == [
        ("clip_000.jpg", "looks like clip_001.jpg, clip_002.jpg")
    ]
    assert all(report.ok for report in reports.values())


def test_a_frame_of_a_clip_of_another_split_is_named_with_the_nearest(two_splits):
    reports = check_splits(two_splits, model=None)
    assert named(reports["train"], "shared near-duplicate") == []
    (file, detail), second = named(reports["val"], "shared near-duplicate")
    assert file == "clip_003.jpg" and second[0] == "clip_004.jpg"
    assert detail.startswith("looks like clip_002.jpg of split 'train' (")
    assert detail.endswith(" of 64 bits of their hashes differ)")


def test_the_report_shows_both_images_of_a_pair(two_splits):
    html = html_of(check_splits(two_splits, model=None))
    of_val = html.partition("Dataset check val")[2].partition("<h2>Boxes")[0]
    captions = [f"clip_{k:03d}.jpg</" in of_val for k in range(3)]
    assert any(captions), "the image of the other split is there"
    assert of_val.count("<img") >= 4


def test_the_report_says_how_many_more_are_in_a_group(tmp_path):
    write_clip(tmp_path / "train", "clip", seed=1, num_frames=5)
    write_photo(tmp_path / "val" / "photo.jpg", seed=10)
    layout = "train: train\nval: val\nnames: [cat]\n"
    (tmp_path / "data.yaml").write_text(layout)
    reports = {"train": check_splits(tmp_path, model=None)["train"]}
    html = html_of(reports).partition("<h2>Problems")[2].partition("<h2>Boxes")[0]
    shown = html.partition("near-duplicate")[2].partition("</details>")[2]
    assert shown.count("<img") == 3
    assert "clip_002.jpg</code> and 2 more</figcaption>" in shown


def test_copies_byte_by_byte_are_told_once(two_splits):
    """As duplicate and as shared image, which say more."""
    source = two_splits / "train" / "photo10x.jpg"
    for copy in (two_splits / "train" / "copy.jpg", two_splits / "val" / "copy.jpg"):
        shutil.copy(source, copy)
        shutil.copy(source.with_suffix(".txt"), copy.with_suffix(".txt"))
    reports = check_splits(two_splits, model=None)
    assert len(named(reports["train"], "duplicate image")) == 1
    assert len(named(reports["train"], "near-duplicate image")) == 1  # the clip
    assert [file for file, _ in named(reports["val"], "shared image")] == ["copy.jpg"]
    shared = [file for file, _ in named(reports["val"], "shared near-duplicate")]
    assert "copy.jpg" not in shared and len(shared) == 2


def test_images_of_one_name_in_two_folders_are_two(two_splits):
    more = two_splits / "more"
    more.mkdir()
    for suffix in (".jpg", ".txt"):
        source = two_splits / "train" / f"photo10x{suffix}"
        shutil.copy(source, two_splits / "val")
        (two_splits / "val" / f"clip_003{suffix}").rename(more / source.name)
    layout = "train: train\nval: [val, more]\nnames: [cat]\n"
    (two_splits / "data.yaml").write_text(layout)
    report = check_splits(two_splits, model=None)["val"]
    (copy,) = report.by_kind()["shared image"]
    first, second = report.by_kind()["shared near-duplicate"]
    names = {"photo10x.jpg", "clip_004.jpg"}
    assert copy.file == "photo10x.jpg" and {first.file, second.file} == names
    place = {record.image_id: record.image for record in report.dataset.records}
    assert place[copy.image_ids[0]] == str(two_splits / "val" / "photo10x.jpg")
    near = {place[problem.image_ids[0]] for problem in (first, second)}
    assert str(more / "photo10x.jpg") in near


def test_headers_alone_have_no_near_duplicates(two_splits):
    reports = check_splits(two_splits, model=None, decode=False)
    for report in reports.values():
        assert report.hashes is None
        assert not [p for p in report.problems if "near-duplicate" in p.kind]


def test_headers_alone_find_copies_of_the_same_name(two_splits):
    for file in ("photo10x.jpg", "photo10x.txt"):
        shutil.copy(two_splits / "train" / file, two_splits / "val" / file)
    reports = check_splits(two_splits, model=None, decode=False)
    told = [("photo10x.jpg", "same image as one of split 'train'")]
    assert named(reports["val"], "shared image") == told
    assert named(reports["train"], "shared image") == []


@pytest.mark.parametrize("decode", [True, False])
def test_splits_are_compared_without_reading_images_again(
    two_splits, monkeypatch, decode
):
    read = []

    def stored_bytes(image):
        read.append(image)
        return pathlib.Path(image).read_bytes()

    monkeypatch.setattr(check_module, "stored_bytes", stored_bytes)
    check_splits(two_splits, model=None, decode=decode)
    images = list(two_splits.rglob("*.jpg"))
    assert sorted(read) == sorted(map(str, images if decode else []))


def test_the_command_prints_them(two_splits, capsys):
    assert cli.main(["inspect", str(two_splits)]) == 0
    text = capsys.readouterr().out
    assert "1 near-duplicate image (all trained on;" in text
    assert "2 shared near-duplicates (almost the same image is trained on" in text


def test_unlike_images_are_named_nowhere():
    cells = pathlib.Path(data.__file__).parent / "blood_cells"
    report = data.check(cells, split="val", model=None)
    assert not [p for p in report.problems if "near-duplicate" in p.kind]
