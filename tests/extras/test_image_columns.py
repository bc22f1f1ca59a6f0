"""Columns of a CSV file by image: how images are told, and what is refused."""

import types

import pytest

from effdet_keras.extras.image_columns import read_image_columns


def record(image_id, file_name, source_id=None):
    name = file_name or f"image_id={image_id}"
    source = image_id if source_id is None else source_id
    names = {"file_name": file_name, "name": name, "source_id": source}
    return types.SimpleNamespace(image_id=image_id, **names)


class Images(types.SimpleNamespace):
    def __len__(self):
        return len(self.records)


DATASET = Images(records=(record(7, "a/1.jpg", "x"), record(9, "b/2.jpg", "y")))


@pytest.fixture
def read(tmp_path):
    def read(text, dataset=DATASET, encoding="utf-8"):
        path = tmp_path / "slices.csv"
        path.write_bytes(text.encode(encoding))
        return read_image_columns(path, dataset)

    return read


@pytest.mark.parametrize(
    "text",
    [
        "file_name,light\na/1.jpg,day\nb/2.jpg,night\n",
        "image_id,light\n7,day\n9,night\n11,dusk",
        "image_id,light\nx,day\ny,night",  # as the dataset's own file calls them
        "file_name;light\r\n1.jpg;day\r\n2.jpg;night\r\n",
        "file_name\tlight\nC:\\data\\1.jpg\tday\n/data/2.jpg\tnight\n",
    ],
)
def test_columns_are_read_by_id_or_name(read, text):
    assert read(text)["light"] == {7: "day", 9: "night"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'image_id' or 'file_name'"),
        ("light,place\nday,Bonn\n", "'image_id' or 'file_name'"),
        ("file_name,light\n1.jpg,day,new\n2.jpg,day\n", "row=2"),
        ("file_name,light\n1.jpg,day\n", "Missing are 1 of 2: b/2.jpg"),
    ],
)
def test_what_is_wrong_is_named(read, text, message):
    with pytest.raises(ValueError, match=message):
        read(text)


def test_a_name_in_two_folders_must_be_whole(read):
    dataset = Images(records=(record(1, "a/1.jpg"), record(2, "b/1.jpg")))
    text = "file_name,x\nb/1.jpg,b\na/1.jpg,a"
    assert read(text, dataset)["x"] == {2: "b", 1: "a"}
    with pytest.raises(ValueError, match="Missing are 1 of 2: b/1.jpg"):
        read("file_name,x\n1.jpg,b\na/1.jpg,a", dataset)


def test_a_column_of_too_many_values_is_refused(read):
    dataset = Images(records=[record(i, f"{i}.jpg") for i in range(101)])
    rows = [f"{i}.jpg,{i}" for i in range(101)]
    with pytest.raises(ValueError, match="at most 100 different values.*column='hash'"):
        read("\n".join(["file_name,hash", *rows]), dataset)
