"""`from_csv`, `write_csv`: the three formats by hand, rows right and wrong."""

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras.data import from_arrays, from_csv, load, write_csv
from effdet_keras.data.formats.csv import csv_readers

HEADER = "filename,width,height,class,xmin,ymin,xmax,ymax\n"


@pytest.fixture
def folder(tmp_path):
    for name in ("a.png", "b.png"):
        save_image(tmp_path / name)
    return tmp_path


@pytest.fixture
def write(folder):
    def write(text, name="train.csv", encoding="utf-8"):
        (folder / name).write_bytes(text.encode(encoding))
        return folder / name

    return write


def test_the_object_detection_api(write):
    text = HEADER + "b.png,40,20,dog,15,5,25,15\na.png,40,20,cat,1,2,3,4.5\n"
    text += "b.png,40,20,cat,0,0,40,20\n"
    dataset = from_csv(write(text))
    assert dataset.class_names == ("cat", "dog")
    assert [example["source_id"] for example in dataset] == ["b.png", "a.png"]
    example = dataset[0]
    np.testing.assert_array_equal(example["boxes"], [[5, 15, 15, 25], [0, 0, 20, 40]])
    np.testing.assert_array_equal(example["labels"], [1, 0])
    np.testing.assert_array_equal(dataset[1]["boxes"], [[2, 1, 4.5, 3]])


SEMICOLONS = HEADER.replace(",", ";") + "a.png;40;20;café;1;2;3;4\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("delimiter", [";", "\t"])
@pytest.mark.parametrize("point", [".", ","])
def test_what_spreadsheets_write_is_read(write, folder, encoding, delimiter, point):
    text = SEMICOLONS.replace(";1;2;", f";1{point}25;2;").replace(";", delimiter)
    write(text.replace("\n", "\r\n"), encoding=encoding)
    dataset = load(folder)
    assert dataset.class_names == ("café",)
    np.testing.assert_array_equal(dataset[0]["boxes"], [[2, 1.25, 4, 3]])


@pytest.mark.parametrize(
    "text, encoding, message",
    [
        (SEMICOLONS, "cp1252", r"CSV UTF-8.*train\.csv"),
        ("name,x,y\na.png,1,2\n", "utf-8", r"header with filename.*train\.csv.*'name'"),
        ("a\0b,1,2,3,4,cat\n" + "x" * 200_000, "utf-8", r"train\.csv"),
    ],
)
def test_a_csv_that_cannot_be_read_says_why(write, folder, text, encoding, message):
    path = write(text, encoding=encoding)
    for place in (folder, path):
        with pytest.raises(ValueError, match=message):
            load(place)


@pytest.mark.parametrize(
    "text",
    [
        "filename,class,xmin,ymin,xmax,ymax\na.png,cat,1,2,3,4\n",
        "\ufeff" + HEADER + "a.png,40,20,cat,1,2,3,4\n",
        HEADER.replace("\n", "\r\n") + 'a.png,40,20,"cat",1,2,3,4\r\n\r\n',
        "ymax,xmax,ymin,xmin,Class,Filename\n4,3,2,1,cat,a.png\n",
        "image,x1,y1,x2,y2,label\na.png,1,2,3,4,cat",
        "a.png,1,2,3,4,cat\n",
        HEADER + "a.png, 40, 20, cat, 1, 2, 3, 4\n",
        HEADER + r"C:\images\a.png,40,20,cat,1,2,3,4",
        HEADER + "/gone/folder/a.png,,,cat,1,2,3,4,9,9,9",
    ],
)
def test_ways_to_write_the_same(write, text):
    dataset = from_csv(write(text))
    np.testing.assert_array_equal(dataset[0]["boxes"], [[2, 1, 4, 3]])
    assert dataset.class_names == ("cat",)


@pytest.mark.parametrize(
    "text",
    [
        HEADER + "a.png,40,20,cat,1,2,3,4\nb.png,40,20,,,,,\n",
        HEADER + "a.png,40,20,cat,1,2,3,4\nb.png\n",
        "a.png,1,2,3,4,cat\nb.png,,,,,\n",
        "TRAIN,a.png,cat,.1,.2,,,.5,.6,,\nTRAIN,b.png,,,,,,,,,\n",
        "TRAIN,a.png,cat,.1,.2,,,.5,.6,,\nTRAIN,b.png\n",
    ],
)
def test_a_row_without_class_and_box_is_a_image_without_objects(write, text):
    dataset = from_csv(write(text))
    assert [len(example["labels"]) for example in dataset] == [1, 0]


@pytest.mark.parametrize(
    "text, negatives",
    [
        (HEADER + "a.png,40,20,cat,1,2,3,4\nb.png,40,20,background,,,,\n", 1),
        (
            "image_id,class_name,class_id,rad_id,x_min,y_min,x_max,y_max\n"
            "a,cat,0,R9,1,2,3,4\nb,No finding,14,R1,,,,\nb,No finding,14,R2,,,,\n",
            2,
        ),
        ("TRAIN,a.png,cat,.1,.2,,,.5,.6,,\nTRAIN,b.png,none,,,,,,,,\n", 1),
        ("a.png,1,2,3,4,cat\nb.png,,,,,none\n", 1),
    ],
)
def test_a_class_without_a_box_is_an_image_without_objects(write, text, negatives):
    with pytest.warns(UserWarning, match=f"{negatives} rows? ha.* a class and no box"):
        dataset = from_csv(write(text))
    assert dataset.class_names == ("cat",)
    assert [len(example["labels"]) for example in dataset] == [1, 0]


def test_half_a_box_of_automl_is_no_image_without_objects(write):
    path = write("TRAIN,a.png,cat,.1,.2,,,.5,.6,,\nTRAIN,b.png,cat,.1,,,,.5,,,\n")
    with pytest.raises(ValueError, match="row 2: four finite numbers"):
        from_csv(path)


def test_automl(write, folder):
    path = write(
        "TRAIN,gs://bucket/deep/a.png,cat,0.125,0.25,,,0.375,0.5,,\n"
        "VALIDATION,gs://bucket/b.png,dog,0.5,0.5,1,0.5,1,1,0.5,1\n"
        "UNASSIGNED,a2.png,dog,0,0,,,1,1,,\n"
    )
    save_image(folder / "a2.png")
    # UNASSIGNED is to train on.
    assert list(csv_readers(path)) == ["train", "validation"]
    names = ["cat", "dog"]
    train = from_csv(path, split="train", class_names=names)
    np.testing.assert_array_equal(train[0]["boxes"], [[5, 5, 10, 15]])
    assert len(train) == 2
    valid = from_csv(path, split="validation", class_names=names)
    np.testing.assert_array_equal(valid[0]["boxes"], [[10, 20, 20, 40]])
    assert len(from_csv(path)) == 3
    with pytest.raises(ValueError, match=r"\['train', 'validation'\].*'holdout'"):
        from_csv(path, split="holdout")
    assert len(from_csv(path, split="val", class_names=names)) == len(valid)


@pytest.mark.parametrize("place", ["images", "train", "images/train", "../images"])
def test_images_are_found_beside_the_file(tmp_path, place):
    inner = tmp_path / "inner"
    save_image(inner / place / "a.png")
    path = inner / "train_labels.csv"
    path.write_text(HEADER + "a.png,40,20,cat,1,2,3,4\n")
    assert len(from_csv(path)[0]["labels"]) == 1
    assert len(from_csv(path, inner / place)) == 1
    with pytest.raises(FileNotFoundError, match="nowhere"):
        from_csv(path, inner / "nowhere")


def test_pixels_where_fractions_are_expected_and_the_other_way_round(write):
    with pytest.raises(ValueError, match="not pixels"):
        from_csv(write("TRAIN,a.png,cat,1,2,,,30,15,,"))
    text = "TRAIN,a.png,cat,0,0,,,1,1,,\nTRIAN,b.png,cat,0,0,,,1,1,,"
    with pytest.raises(ValueError, match="row 2: the first column must be one of"):
        from_csv(write(text))
    text = HEADER + "a.png,40,20,cat,.1,.2,.3,.4\nb.png,40,20,cat,.1,.2,.3,.4\n"
    with pytest.raises(ValueError, match="1 normalized box: .*all 2 boxes lie between"):
        from_csv(write(text))


@pytest.mark.parametrize(
    "content", [b"", b"a,b\n1,2\n", b"\xff\xfe", b"a.png,x,2,3,4,cat"]
)
def test_other_files_are_explained(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"`from_csv` expects.*a\.csv"):
        from_csv(tmp_path / "a.csv")


def test_what_is_written_is_what_others_read(tmp_path):
    image = np.zeros((20, 40, 3), np.uint8)
    boxes = [[[5, 15, 15, 25.5], [-3, 30, 50, 60]], []]
    dataset = from_arrays([image] * 2, boxes, [[1, 0], []], ["Bär", 'a "b", c'])
    write_csv({"train": dataset}, tmp_path / "tfod")
    assert (tmp_path / "tfod/train.csv").read_text(encoding="utf-8") == (
        "filename,width,height,class,xmin,ymin,xmax,ymax\n"
        'train/000000000001.png,40,20,"a ""b"", c",15,5,25.5,15\n'
        "train/000000000001.png,40,20,Bär,30,-3,60,50\n"
        "train/000000000002.png,40,20,,,,,\n"
    )


# --- What other programs call the columns.


@pytest.mark.parametrize(
    "header, row",
    [
        ("id,class,x1,y1,x2,y2", "a.png,cat,1,2,3,4.5"),
        (",image_path,label_name,x_min,y_min,x_max,y_max", "0,a.png,cat,1,2,3,4.5"),
        ("Image Name,Category,Left,Top,Right,Bottom", "a.png,cat,1,2,3,4.5"),
        (
            "label_name,bbox_x,bbox_y,bbox_width,bbox_height,image_name,image_width,"
            "image_height",
            "cat,1,2,2,2.5,a.png,40,20",
        ),
        ("image,left,top,width,height,label", "a.png,1,2,2,2.5,cat"),
        (
            "image,image_width,image_height,left,top,width,height,label",
            "a.png,40,20,1,2,2,2.5,cat",
        ),
        ("image,center_x,center_y,width,height,label", "a.png,2,3.25,2,2.5,cat"),
        ("image,label,cx,cy,w,h", "a.png,cat,2,3.25,2,2.5"),
        ("cat,1,2,2,2.5,a.png,40,20", ""),
        ("cat,1,2,2,2.5,a.png", ""),
    ],
)
@pytest.mark.filterwarnings("error")
def test_columns_by_other_names(write, header, row):
    dataset = from_csv(write(f"{header}\n{row}\n"))
    assert dataset.class_names == ("cat",)
    np.testing.assert_array_equal(dataset[0]["boxes"], [[2, 1, 4.5, 3]])


@pytest.mark.parametrize("sides", ["w,h", "width,height"])
def test_left_and_top_may_be_a_center_and_are_told(write, sides):
    path = write(f"image,label,x,y,{sides}\na.png,cat,1,2,2,2.5\n")
    with pytest.warns(UserWarning, match=r"x, y, width and height are read as left"):
        dataset = from_csv(path)
    np.testing.assert_array_equal(dataset[0]["boxes"], [[2, 1, 4.5, 3]])


@pytest.mark.parametrize(
    "text",
    [
        "a.png,1,2,3,4.5\n",
        "filename,xmin,ymin,xmax,ymax\na.png,1,2,3,4.5\n",
        ",filename,width,height,xmin,ymin,xmax,ymax,area\n0,a.png,40,20,1,2,3,4.5,5\n",
    ],
)
def test_a_file_without_classes_has_one(write, text):
    path = write(text)
    with pytest.warns(
        UserWarning,
        match="no column of classes, so all boxes are read as the class 'obj",
    ):
        dataset = from_csv(path)
    assert dataset.class_names == ("object",)
    np.testing.assert_array_equal(dataset[0]["boxes"], [[2, 1, 4.5, 3]])
    assert from_csv(path, class_names=["cat"]).class_names == ("cat",)


def test_a_column_that_could_be_the_class_is_not_passed_over(write):
    with pytest.raises(ValueError, match="expects a header"):
        from_csv(write("filename,species,xmin,ymin,xmax,ymax\na.png,cat,1,2,3,4\n"))


def test_numbers_for_classes_are_told(write):
    path = write("image,class_id,xmin,ymin,xmax,ymax\na.png,2,1,2,3,4.5\n")
    with pytest.warns(
        UserWarning, match="has numbers instead of class names, 2, and the"
    ):
        assert from_csv(path).class_names == ("2",)


def test_rows_of_boxes_in_a_txt_file(folder, write):
    write("a.png,1,2,3,4.5,cat\nb.png,1,2,3,4.5,dog\n", "annotate.txt")
    write("a.png 1\n", "other.txt")
    write("cat,1,2\n", "words.txt")
    dataset = load(folder)
    assert len(dataset) == 2 and dataset.class_names == ("cat", "dog")


def test_a_number_in_front_of_the_box_is_not_its_left_side(write):
    with pytest.raises(ValueError, match="expects a header"):
        from_csv(write("a.png,1,5,6,30,14\n"))
    assert from_csv(write("a.png,5,6,30,14,1\n"))[0]["boxes"].tolist() == [
        [6, 5, 14, 30]
    ]


@pytest.mark.parametrize(
    "second, meaning",
    [("[5, 6, 1.5, 2]", "left, top, width and height"), ("5 6 7 8", "the corners")],
)
def test_four_numbers_in_one_column(write, second, meaning):
    # As Kaggle's wheat heads have them. One box of a side below its left is no corner.
    path = write(
        f'image_id,width,height,bbox\na,40,20,"[1.0, 2.0, 3, 4]"\nb,40,20,"{second}"\n'
    )
    with pytest.warns(UserWarning, match=f"are read as {meaning}"):
        dataset = from_csv(path, class_names=["wheat"])
    first = [2, 1, 4, 3] if meaning == "the corners" else [2, 1, 6, 4]
    np.testing.assert_array_equal(dataset[0]["boxes"], [first])
    np.testing.assert_array_equal(
        dataset[1]["boxes"], [[6, 5, 8, 7 if meaning == "the corners" else 6.5]]
    )


def test_an_image_without_objects_has_an_empty_cell_of_four_numbers(write):
    path = write('filename,class,bbox\na.png,cat,"(5, 6, 1, 2)"\nb.png,,\n')
    with pytest.warns(UserWarning, match="left, top, width and height"):
        assert [len(e["boxes"]) for e in from_csv(path)] == [1, 0]


def test_a_cell_without_four_numbers_is_told(write):
    path = write('filename,class,bbox\na.png,cat,"[5, 6, 1]"\n')
    with pytest.raises(ValueError, match="four finite numbers"):
        from_csv(path)
