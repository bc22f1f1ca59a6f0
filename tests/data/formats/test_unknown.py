"""A json or csv file that no reader knows: the error says what it has."""

import json
import re

import pytest

from effdet_keras.data import load

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:be0\nsize 99\n"


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "boxes.csv",
            "img,x,y\na.png,1,2\n",
            "'boxes.csv' has the columns 'img', 'x', 'y'",
        ),
        ("boxes.csv", "img;x\na.png;1\n", "has the columns 'img', 'x'"),
        ("boxes.tsv", "img\tx\na.png\t1\n", "has the columns 'img', 'x'"),
        ("boxes.csv", "", "'boxes.csv' is empty"),
        ("a.json", '{"frames": [], "w": 3}', "is objects with the keys 'frames', 'w'"),
        (
            "a.json",
            '[{"pic": 1}, {}]',
            "'a.json' is a list of objects with the keys 'pic'",
        ),
        ("a.json", '["cat", "dog"]', "is a list of 'cat'"),
        ("a.json", "{", r"'a.json' is not valid json \(Expecting"),
        ("annotations/a.json", '{"frames": []}', "a.json' is objects with the keys"),
        (
            "a/b/c/annotations.json",
            '[{"image_path": "a.jpg", "objects": []}]',
            "annotations.json' is a list of objects with the keys 'image_path', 'obj",
        ),
        (
            "a.jsonl",
            '\n{"pic": 1}\n{"pic": 2}\n',
            "'a.jsonl' is objects with the keys 'pic'",
        ),
    ],
)
def test_keys_and_columns_are_named_and_those_that_are_known(
    tmp_path, name, content, message
):
    path = tmp_path / "set" / name
    path.parent.mkdir(parents=True)
    path.write_text(content)
    known = r"images, annotations, categories \(COCO\)"
    if path.suffix in (".csv", ".tsv"):
        known = r"filename, class, xmin, ymin, xmax, ymax \(the Object Detection API\)"
    for place in (tmp_path / "set", path):
        with pytest.raises(ValueError, match=f"{message}.*Known .* are: {known}"):
            load(place)


def test_of_many_files_and_keys_the_first_are_named(tmp_path):
    content = {f"key {i}" * 20: i for i in range(12)}
    for number in range(5):
        (tmp_path / f"{number}.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="and 4 more") as caught:
        load(tmp_path)
    assert str(caught.value).count("is objects with the keys") == 3
    assert str(caught.value).count("Known keys are") == 1
    assert "write a csv file with a row for each box" in str(caught.value)
    assert len(str(caught.value)) < 3000


def test_files_that_may_be_annotations_come_first(tmp_path):
    for name in ("a", "b", "c", "data/labels/d", "data/my_boxes", "models/box", "e/f"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.json").write_text('{"frames": []}')
    with pytest.raises(ValueError, match="Known keys are") as caught:
        load(tmp_path)
    told = re.findall("'([^']+)' is objects with", str(caught.value))
    assert told == ["data/my_boxes.json", "data/labels/d.json", "a.json"]


@pytest.mark.parametrize(
    ("name", "is_told"),
    [("best.pth", False), ("m.h5", False), ("a.zip", True), ("images/a.jpg", True)],
)
def test_pointers_of_git_lfs_that_are_no_data_are_not_told(tmp_path, name, is_told):
    (tmp_path / "a").mkdir()
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(LFS)
    with pytest.raises(ValueError, match="No dataset was found") as caught:
        load(tmp_path)
    assert ("`git lfs pull`" in str(caught.value)) == is_told


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("data/images.zip", b"PK", "is an archive: unpack it"),
        ("data/train.tar.gz", b"x", "is an archive: unpack it"),
        ("data/train.dvc", b"outs:", "only points to data.*`dvc pull`"),
        ("gTruth.mat", b"MATLAB", "is a file of MATLAB.*writetable"),
        ("a/b.json", LFS, "is a pointer of Git LFS.*`git lfs pull`"),
    ],
)
def test_files_that_stand_for_data_are_told_with_what_to_do(
    tmp_path, name, content, message
):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"{path.name}' {message}"):
        load(tmp_path)
    with pytest.raises(ValueError, match=f"{path.name}' {message}"):
        load(path)


def test_an_image_that_is_a_pointer_of_git_lfs_is_told(tmp_path):
    (tmp_path / "a.jpg").write_bytes(LFS)
    (tmp_path / "a.txt").write_text("0 0.5 0.5 0.5 0.5")
    (tmp_path / "classes.txt").write_text("cat")
    with pytest.raises(ValueError, match="a.jpg.*pointer of Git LFS: get the file"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["train_images.tar"], "may be in '.*train_images.tar': unpack it"),
        (
            ["data/images.rar", "b.7z"],
            r"may be in '.*b.7z', '.*images.rar': unpack the",
        ),
        (["models/weights.zip"], r"folder right\? Put the images where"),
    ],
)
def test_archives_that_may_have_the_missing_images_are_told(tmp_path, names, message):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"PK")
    row = "filename,width,height,class,xmin,ymin,xmax,ymax\na.png,40,20,cat,1,2,3,4\n"
    (tmp_path / "train.csv").write_text(row)
    for place in (tmp_path, tmp_path / "train.csv"):
        with pytest.raises(FileNotFoundError, match=message):
            load(place)
