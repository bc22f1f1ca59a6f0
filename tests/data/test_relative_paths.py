"""A dataset is read alike by each path that names it, as in `cd pets; ... train .`."""

import pytest
from support.cloned_files import coco, loaded, put, yolo

from effdet_keras.data import from_yolo, load, write_shapes
from effdet_keras.data.known_formats import FORMATS


def lists(folder):
    yolo(folder, "train", "train", ["a", "b"])
    put(folder, "train.txt", text=f"{folder}/train/a.jpg\n")


def split_folders(folder):
    for split in ("train", "valid"):
        put(folder, f"{split}/a.jpg", color="black" if split == "train" else "white")
        put(folder, f"{split}/_annotations.coco.json", text=coco("a.jpg"))


WRITTEN = sorted(name for name, format in FORMATS.items() if format.write is not None)
MADE = {
    "images and labels": yolo,
    "folders of splits": split_folders,
    "lists": lists,
}


@pytest.fixture(params=[*WRITTEN, *MADE])
def folder(request, tmp_path):
    folder = tmp_path / "train"  # a name that means something to readers
    if request.param in MADE:
        MADE[request.param](folder)
    else:
        write_shapes(tmp_path / "shapes", num_train=3, num_valid=2)
        datasets = {s: load(tmp_path / "shapes", s) for s in ("train", "valid")}
        FORMATS[request.param].write(datasets, folder)
    return folder


@pytest.mark.parametrize("where, name", [(".", "."), ("..", "train"), ("in", "..")])
def test_a_relative_path_reads_what_the_whole_one_reads(
    folder, where, name, monkeypatch
):
    expected, said = loaded(folder)
    assert any(expected.values())
    (folder / "in").mkdir()
    monkeypatch.chdir(folder / where)
    names, said_here = loaded(name)
    assert names == expected
    assert said_here.count(": ") == said.count(": ")


def test_the_readers_of_one_format_take_a_relative_path(tmp_path, monkeypatch):
    yolo(tmp_path)
    monkeypatch.chdir(tmp_path)
    for path in (".", tmp_path):
        assert [len(record.labels) for record in from_yolo(path).records] == [1]
