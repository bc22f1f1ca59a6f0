"""Columns of a CSV file by image: how images are told, and what is refused."""

import types

import numpy as np
import pytest

from effdet_keras.data import from_arrays
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
        "light,Image\nday,1.jpg\nnight,2.jpg\n",
        "image_id,light\n7,day\n9,night",
        "id,light\nx,day\ny,night",  # as the dataset's own file calls them
        "filename;light\r\n1.jpg;day\r\n2.jpg;night\r\n",
        "path\tlight\nC:\\data\\1.jpg\tday\n/data/2.jpg\tnight\n",
        '\ufefffile_name,light\n"a/1.jpg", day\n\nb/2.jpg,"night"\n',
        # An id counts more than a name.
        "image_id,light,file\n7,day,2.jpg\n9,night,1.jpg",
    ],
)
def test_columns_are_read_by_id_or_name(read, text):
    assert read(text)["light"] == {7: "day", 9: "night"}


def test_all_columns_are_read_and_empty_cells_are_a_value(read):
    columns = read("place,file,light\nBonn,1.jpg,\nKöln,2.jpg,day\n")
    assert columns == {
        "place": {7: "Bonn", 9: "Köln"},
        "light": {7: "(empty)", 9: "day"},
    }


def test_the_image_ids_of_arrays_are_known(read):
    images = [np.zeros((1, 1, 3), "uint8")] * 2
    dataset = from_arrays(images, [[], []], [[], []], ["cat"])
    assert read("image_id,light\n2,b\n1,a", dataset)["light"] == {2: "b", 1: "a"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("light,place\nday,Bonn\n", "no column that names the image"),
        ("file_name\n1.jpg\n2.jpg\n", "no column beside 'file_name'"),
        ("file,light,light\n1.jpg,a,b\n2.jpg,a,b\n", "a name of its own"),
        ("file,light,\n1.jpg,a,b\n2.jpg,a,b\n", "a name of its own"),
        ("file,light\n1.jpg,day,new\n2.jpg,day\n", "row 2 of .* with 3 cells"),
        ("file,light\n1.jpg,day\n3.jpg,day\n", "Missing: 1 of 2.*'3.jpg' in row 3"),
        ("file,light\n1.jpg,day\n", "Missing: 1 of 2: b/2.jpg"),
        ("file,light\n1.jpg,day\n2.jpg,day\na/1.jpg,day", "two of 'a/1.jpg', 2 and 4"),
        ("image_id,light\n1,day\n9,day\n", "'1' in row 2"),
    ],
)
def test_what_is_wrong_is_named(read, text, message):
    with pytest.raises(ValueError, match=message):
        read(text)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_other_encodings_are_refused(read, encoding):
    with pytest.raises(ValueError, match="must be text in UTF-8.*CSV UTF-8"):
        read("file,place\n1.jpg,Köln\n2.jpg,Bonn\n", encoding=encoding)


def test_a_name_in_two_folders_must_be_whole(read):
    dataset = Images(records=(record(1, "a/1.jpg"), record(2, "b/1.jpg")))
    assert read("file,x\nb/1.jpg,b\na/1.jpg,a", dataset)["x"] == {2: "b", 1: "a"}
    with pytest.raises(ValueError, match="does not tell apart: '1.jpg' in row 2"):
        read("file,x\n1.jpg,b\na/1.jpg,a", dataset)


def test_a_column_of_too_many_values_is_refused(read):
    dataset = Images(records=[record(i, f"{i}.jpg") for i in range(101)])
    rows = [f"{i}.jpg,{i}" for i in range(101)]
    with pytest.raises(ValueError, match="101 values of 'hash', such as"):
        read("\n".join(["file,hash", *rows]), dataset)


def test_rows_of_other_splits_are_left_out(read):
    columns = read("file,light\n1.jpg,day\n3.jpg,dusk\n2.jpg,night\n")
    assert columns == {"light": {7: "day", 9: "night"}}
