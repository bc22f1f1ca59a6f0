"""Repositories of one sample, as small copies: tables and files beside images.

See `test_cloned.py`.
"""

import json

import pytest
from support.cloned_files import CSV, VOC, loaded, paths, put, yolo

from effdet_keras.data import load, load_splits
from effdet_keras.data.problems import MissingImageError


def test_corners_of_mirrored_images_are_sorted(tmp_path):
    """A script had turned the images and the points of their boxes."""
    put(tmp_path, "train/a.jpg", "train/a-mirrored.jpg", "train/a-both.jpg")
    rows = "a.jpg 2,3,14,16,0 5,5,5,9,0\na-mirrored.jpg 38,3,26,16,0\n"
    rows += "a-both.jpg 38,17,26,4,0\n"
    put(tmp_path, "train/_annotations.txt", text=rows)
    put(tmp_path, "train/_classes.txt", text="cat\n")
    with pytest.warns(UserWarning, match="2 of 4 boxes end before they begin.*mirr"):
        dataset = load(tmp_path)
    boxes = [record.boxes_xywh.tolist() for record in dataset.records]
    assert boxes == [[[2, 3, 12, 13]], [[26, 3, 12, 13]], [[26, 4, 12, 13]]]
    kinds = [problem.kind for problem in dataset.problems]
    assert sorted(kinds) == ["empty box", "exchanged corners"]


def test_an_image_of_a_name_of_several_is_in_the_folder_of_its_class(tmp_path, capsys):
    """Two more csv files had some of the rows, and the rows in another format."""
    header, rows, sides = "id,class,x1,y1,x2,y2\n", "", ""
    for i, name in enumerate(("Bud", "Heineken")):
        put(tmp_path, f"Dataset/{name}/1.png", color=("red", "blue")[i])
        put(tmp_path, f"Dataset/{name}/2.png", color=("green", "white")[i])
        rows += f"1.png,{name},{i},3,14,16\n2.png,{name},{i},5,20,18\n"
        sides += f"1.png,{name},{i},3,9,9\n2.png,{name},{i},5,9,9\n"
    put(tmp_path, "train.csv", text=header + rows)
    put(tmp_path, "bbox.csv", text=header + rows.split("2.png")[0])
    put(tmp_path, "train_matlab.csv", text=header + sides)
    with pytest.warns(UserWarning, match="4 images do not say alone which of several"):
        splits = load_splits(tmp_path)
    assert list(splits) == ["train"]
    assert paths(splits["train"], tmp_path) == [
        "Dataset/Bud/1.png",
        "Dataset/Bud/2.png",
        "Dataset/Heineken/1.png",
        "Dataset/Heineken/2.png",
    ]
    assert [record.labels.tolist() for record in splits["train"].records] == [
        [0],
        [0],
        [1],
        [1],
    ]
    assert "The split 'train_matlab' was left out" in capsys.readouterr().out
    # Without the folder of a class it is not known which image is meant.
    (tmp_path / "Dataset/Bud").rename(tmp_path / "Dataset/beer")
    with pytest.raises(MissingImageError, match="2 images have that name"):
        load(tmp_path, "train")


def test_a_column_of_paths_tells_images_of_one_name_apart(tmp_path):
    put(tmp_path, "Data/A.class/1.jpg", "Data/A.class/2.jpg", color="red")
    put(tmp_path, "Data/B.class/1.jpg", "Data/B.class/3.jpg", color="blue")
    rows = "1.jpg,A,2,3,9,9,A.class/1.jpg\n2.jpg,A,2,3,9,9,A.class/2.jpg\n"
    rows += "1.jpg,B,2,3,9,9,B.class/1.jpg\n3.jpg,B,2,3,9,9,B.class/3.jpg\n"
    put(tmp_path, "boxes.csv", text="filename,label,x,y,width,height,path\n" + rows)
    expected = [f"Data/{name}.jpg" for name in ("A.class/1", "A.class/2")]
    expected += [f"Data/{name}.jpg" for name in ("B.class/1", "B.class/3")]
    assert paths(load(tmp_path), tmp_path) == expected
    put(tmp_path, "Data/B.class/2.jpg", color="green")  # which 2.jpg the path tells
    assert paths(load(tmp_path), tmp_path) == expected


def test_an_image_in_the_folder_of_another_split_is_read_with_a_warning(tmp_path):
    """The xml files and the images of two names lay in different folders."""
    for split, names, other in (("train", "ab", "y"), ("test", "cd", "x")):
        own = {"train": "x", "test": "y"}[split]
        put(tmp_path, *(f"images/{split}/{name}.jpg" for name in (*names, other)))
        rows = [f"{name}.jpg,40,20,cat,2,3,14,16\n" for name in (*names, own)]
        put(tmp_path, f"images/{split}_labels.csv", text=CSV + "".join(rows))
        for name in (*names, own):
            text = VOC.format(f"{name}.jpg")
            put(tmp_path, f"images/{split}/{name}.xml", text=text)
    names, said = loaded(tmp_path)
    assert names == {
        "train": ["a.jpg", "b.jpg", "x.jpg"],
        "test": ["c.jpg", "d.jpg", "y.jpg"],
    }
    assert "1 of 3 images is in the folder of another split" in said
    assert "1 of 3 images is in" in loaded(tmp_path, format="voc")[1]
    # An image that an entry of its own split names is no other one.
    rows = "c.jpg,40,20,cat,2,3,14,16\nx.jpg,40,20,cat,2,3,14,16\n"
    put(tmp_path, "images/test_labels.csv", text=CSV + rows)
    with pytest.raises(MissingImageError, match="belongs to another entry"):
        load_splits(tmp_path, format="csv")


def test_a_list_of_names_in_gbk_is_read_with_a_note(tmp_path):
    yolo(tmp_path, classes=None)
    put(tmp_path, "cropped/a.jpg")
    classes = tmp_path / "classes.txt"
    classes.write_bytes("0:小刀\r\n1:剪刀\r\n2:长刀\r\n".encode("gbk"))
    with pytest.warns(UserWarning, match="read in the encoding gb2312"):
        assert load(tmp_path).class_names == ("小刀", "剪刀", "长刀")
    # Bytes that may be text in another script as well are not read.
    for text, encoding in (
        ("고양이\n", "euc_kr"),
        ("лиса\n", "cp1251"),
        ("犬\n猫\n", "shift_jis"),
        ("刀\n", "gbk"),
    ):
        classes.write_bytes(text.encode(encoding))
        with pytest.raises(ValueError, match="Text must be in UTF-8") as caught:
            load(tmp_path)
        assert "no image of the same name" not in str(caught.value)


def test_a_folder_of_txt_files_names_the_folder_of_their_images(tmp_path):
    yolo(tmp_path)
    put(tmp_path, "cropped/a.jpg")
    with pytest.raises(ValueError, match=r"Their images are in .*images': pass the"):
        load(tmp_path / "labels")


def test_a_label_map_beside_a_csv_file_names_its_numbers(tmp_path):
    put(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    rows = ("a.jpg,40,20,1,2,3,14,16\n", "b.jpg,40,20,2,2,3,14,16\n")
    put(tmp_path, "train.csv", text=CSV + "".join(rows))
    put(tmp_path, "test.csv", text=CSV + "c.jpg,40,20,1,2,3,14,16\n")
    text = "item {{ id: {} name: '{}' }}\n"
    names = text.format(2, "Debris") + text.format(1, "Satellite")
    put(tmp_path, "speed_label.pbtxt", text=names)
    with pytest.warns(UserWarning, match=r"those of .*label\.pbtxt.*'1': 'Sat"):
        splits = load_splits(tmp_path)
    for name in ("train", "test"):
        assert splits[name].class_names == ("Debris", "Satellite")
        assert splits[name].records[0].labels.tolist() == [1]
    # A map with more names may be that of another model.
    put(tmp_path, "speed_label.pbtxt", text=names + text.format(3, "Moon"))
    with pytest.warns(UserWarning, match="numbers instead of class names"):
        assert load(tmp_path, "train").class_names == ("1", "2")


def test_a_class_of_few_regions_beside_many_without_one_is_not_used(tmp_path):
    box = {"name": "rect", "x": 1, "y": 2, "width": 12, "height": 13}
    regions = [
        {"shape_attributes": box | {"x": x}, "region_attributes": {}} for x in range(9)
    ]
    regions[3]["region_attributes"] = {"name": "not_defined"}
    put(tmp_path, "section/a.jpg")
    content = {"a": {"filename": "a.jpg", "regions": regions}}
    put(tmp_path, "via_export_json.json", text=json.dumps(content))
    text = "8 of 9 regions have no 'name', and all others have 'not_defined', so all"
    with pytest.warns(UserWarning, match=f"{text} are read as the class 'object'"):
        dataset = load(tmp_path)
    assert dataset.class_names == ("object",)
    assert len(dataset.records[0].labels) == 9
    assert load(tmp_path, class_names=["tooth"]).class_names == ("tooth",)
    # As many with a class as without one: it is not known what the others are.
    for region in regions[4:8]:
        region["region_attributes"] = {"name": "not_defined"}
    put(tmp_path, "via_export_json.json", text=json.dumps(content))
    with pytest.raises(ValueError, match="must have one value of 'name'"):
        load(tmp_path)


def test_images_that_are_named_after_the_ids_of_a_labelbox_export(tmp_path, capsys):
    """A script had downloaded them; another file named them by their addresses."""
    address, rows, tasks = "https://storage.labelbox.com/c1%2F{}_Color.png?k=1", [], []
    for name in ("clc4voo7", "cld352s2"):
        put(tmp_path, f"data/images/{name}.jpg")
        box = {"top": 3, "left": 2, "height": 13, "width": 12}
        label = {"objects": [{"value": "witloof", "bbox": box}]}
        url = address.format(f"d05b-{name[3:]}")
        row = {"ID": name, "DataRow ID": f"{name}x", "Labeled Data": url}
        rows.append(row | {"Label": label})
        value = {"x": 5, "y": 5, "width": 50, "height": 50}
        value |= {"rectanglelabels": ["chicory"]}
        result = {"type": "rectanglelabels", "value": value}
        result |= {"original_width": 40, "original_height": 20}
        tasks.append({"data": {"image": url}, "annotations": [{"result": [result]}]})
    put(tmp_path, "data/export.json", text=json.dumps(rows))
    put(tmp_path, "label_studio.json", text=json.dumps(tasks))
    dataset = load(tmp_path)
    assert dataset.class_names == ("witloof",)
    expected = [f"data/images/{row['ID']}.jpg" for row in rows]
    assert paths(dataset, tmp_path) == expected
    said = capsys.readouterr().out
    assert "(Label Studio: split train), which cannot be read" in said
