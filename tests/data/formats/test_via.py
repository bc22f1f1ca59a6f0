"""`from_via`: VIA 1 and 2, project, json and csv, with the class in an attribute."""

import json

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras import data
from effdet_keras.data import from_via, load_splits
from effdet_keras.data.any_format import load_each
from effdet_keras.data.formats.via import via_readers
from effdet_keras.data.record import load_mask

RECT = {"name": "rect", "x": 5, "y": 2, "width": 20, "height": 10}
POLYGON = {
    "name": "polygon",
    "all_points_x": [1, 9.5, 3, 1],
    "all_points_y": [2, 4, 8.25, 2],
}


def region(shape, **attributes):
    return {"shape_attributes": shape, "region_attributes": attributes}


def images(*regions, as_dict=False, second="b.png"):
    """The content of VIA's json: of version 1 with a dict of regions."""
    first = {str(i): r for i, r in enumerate(regions)} if as_dict else list(regions)
    empty = {} if as_dict else []
    return {
        f"{name}99": {
            "fileref": "",
            "filename": name,
            "size": 99,
            "base64_img_data": "",
            "file_attributes": {},
            "regions": content,
        }
        for name, content in (("a.png", first), (second, empty))
    }


def project(content, **attributes):
    return {
        "_via_settings": {"ui": {}, "core": {"filepath": {}}, "project": {"name": "x"}},
        "_via_img_metadata": content,
        "_via_attributes": {"region": attributes, "file": {}},
        "_via_data_format_version": "2.0.10",
    }


@pytest.fixture
def write(tmp_path):
    for name in ("a.png", "b.png"):
        save_image(tmp_path / name)

    def write(content, name="via_region_data.json"):
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_text(text)
        return tmp_path

    return write


CSV = (
    "{}filename,file_size,file_attributes,region_count,region_id,"
    "region_shape_attributes,region_attributes\n"
    'a.png,99,"{{}}",2,0,"{{""name"":""rect"",""x"":5,""y"":2,""width"":20,'
    '""height"":10}}","{{""species"":""cat""}}"\n'
    'a.png,99,"{{}}",2,1,"{{""name"":""polygon"",""all_points_x"":[1,9.5,3,1],'
    '""all_points_y"":[2,4,8.25,2]}}","{{""species"":""dog""}}"\n'
    'b.png,99,"{{}}",0,0,"{{}}","{{}}"\n'
)
REGIONS = (region(RECT, species="cat"), region(POLYGON, species="dog"))


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("content", "name"),
    [
        (images(*REGIONS, as_dict=True), "via_region_data.json"),
        (images(*REGIONS), "via_export_json.json"),
        (project(images(*REGIONS)), "via_project_1May2024_10h0m.json"),
        (CSV.format("#"), "via_region_data.csv"),
        (CSV.format(""), "via_export_csv.csv"),
    ],
)
def test_what_the_versions_save(write, content, name, capsys):
    folder = write(content, name)
    dataset = data.load(folder, masks=True)
    assert "is VIA: split train" in capsys.readouterr().out
    assert dataset.class_names == ("cat", "dog")
    assert [record.file_name for record in dataset.records] == ["a.png", "b.png"]
    boxes = [[5, 2, 20, 10], [1, 2, 8.5, 6.25]]
    np.testing.assert_array_equal(dataset.records[0].boxes_xywh, boxes)
    np.testing.assert_array_equal(dataset.records[0].labels, [0, 1])
    assert len(dataset.records[1].labels) == 0
    assert 2 in load_mask(dataset.records[0])


def test_a_project_and_its_exports_are_one_dataset(write):
    write(images(*REGIONS), "via_export_json.json")
    write(project(images(*REGIONS)), "via_project.json")
    folder = write(CSV.format(""), "via_export_csv.csv")
    assert list(data.load_splits(folder)) == ["train"]
    write(images(REGIONS[0]), "via_project.json")  # of other regions
    # Of these two, none may hide the other.
    assert list(data.load_splits(folder)) == ["via_export_json", "via_project"]


def test_the_same_regions_in_two_splits_are_two_splits(write):
    write(images(*REGIONS), "train.json")
    folder = write(images(*REGIONS), "val.json")
    with pytest.warns(UserWarning, match="contain the same 2 images"):
        assert list(data.load_splits(folder)) == ["train", "val"]


def test_a_csv_file_of_another_split_is_not_hidden_by_a_json_file(write):
    write(images(*REGIONS), "via_train.json")
    write(CSV.format(""), "via_train.csv")
    folder = write(CSV.format(""), "via_val.csv")
    with pytest.warns(UserWarning, match="contain the same|(is|are) also in 'train'"):
        assert list(data.load_splits(folder)) == ["train", "val"]


def test_folders_of_splits(tmp_path):
    for split in ("train", "val"):
        save_image(tmp_path / split / "a.png")
        save_image(tmp_path / split / "b.png")
        text = json.dumps(images(*REGIONS))
        (tmp_path / split / "via_region_data.json").write_text(text)
    splits = data.load_splits(tmp_path)
    assert list(splits) == ["train", "val"]
    assert splits["val"].records[0].image == str(tmp_path / "val" / "a.png")


def test_options_of_a_project_are_the_order_of_the_classes(write):
    attributes = {
        "species": {"type": "radio", "options": {"dog": "", "cat": "", "cow": ""}}
    }
    folder = write(project(images(*REGIONS), **attributes))
    assert from_via(folder).class_names == ("dog", "cat", "cow")
    attributes["species"]["options"] = {"dog ": "", " cat": ""}  # as people type them
    assert from_via(write(project(images(*REGIONS), **attributes))).class_names == (
        "dog",
        "cat",
    )


def test_check_boxes_have_the_class_as_a_key(write):
    checked = region(RECT, kind={"cat": True, "dog": False})
    assert from_via(write(images(checked))).class_names == ("cat",)
    both = region(RECT, kind={"cat": True, "dog": True})
    with pytest.raises(
        ValueError, match="1 bad box: a.png: region 0 must have one value of"
    ):
        from_via(write(images(both)))


def test_of_several_attributes_the_usual_name_is_the_class(write):
    folder = write(images(region(RECT, quality="good", Label="cat")))
    assert from_via(folder).class_names == ("cat",)
    assert from_via(folder, class_attribute="quality").class_names == ("good",)
    with pytest.raises(ValueError, match=r"one of \['quality', 'Label'\].*='shade'"):
        from_via(folder, class_attribute="shade")
    folder = write(images(region(RECT, quality="good", breed="cat")))
    with pytest.raises(ValueError, match=r"from_via\(path, class_attribute='breed'\)"):
        data.load(folder)
    options = {"reader_options": {"class_attribute": "breed"}}
    assert data.load(folder, **options).class_names == ("cat",)
    assert load_each({"train": folder}, **options)["train"].class_names == ("cat",)


def test_the_name_of_an_attribute_may_be_pasted_into_a_shell(write):
    attributes = {"dog's breed": "cat", "a good one": "yes"}
    both = {"shape_attributes": RECT, "region_attributes": attributes}
    folder = write(images(both))
    with pytest.raises(
        ValueError, match=r"in a shell `--reader-option 'class_attribute=a good one'`"
    ):
        data.load(folder)


def test_regions_without_attributes_are_one_class_and_it_is_said(write):
    folder = write(images(region(RECT)))
    with pytest.warns(UserWarning, match="so all are read as the class 'object'"):
        assert from_via(folder).class_names == ("object",)
    assert from_via(folder, class_names=["balloon"]).class_names == ("balloon",)


def test_circles_and_ellipses(write):
    circle = region({"name": "circle", "cx": 20, "cy": 10, "r": 5.5}, name="a")
    ellipse = {"name": "ellipse", "cx": 20, "cy": 10, "rx": 6, "ry": 2}
    turned = region({**ellipse, "theta": np.pi / 2}, name="b")
    folder = write(images(circle, region(ellipse, name="b"), turned))
    np.testing.assert_allclose(
        from_via(folder).records[0].boxes_xywh,
        [[14.5, 4.5, 11, 11], [14, 8, 12, 4], [18, 4, 4, 12]],
    )


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (region({**RECT, "x": None}, name="cat"), "finite numbers.*'x': None"),
        (region({"name": "star", "x": 1}, name="cat"), "'star'"),
        (region({**POLYGON, "all_points_y": [1]}, name="cat"), "'polygon'"),
        (region(RECT, other="cat"), "must have one value of 'name'"),
        (region(RECT, name=" "), "must have one value of 'name'"),
        (region(RECT), r"Received: \{\}\. Set it in VIA's annotation editor"),
    ],
)
def test_bad_regions_are_named(write, bad, message):
    folder = write(images(region(RECT, name="cat"), bad))
    with pytest.raises(ValueError, match=rf"1 bad box: a\.png: region 1 .*{message}"):
        from_via(folder)


def test_points_are_left_out_and_other_files_explained(write, tmp_path):
    point = region({"name": "point", "cx": 3, "cy": 4}, name="tip")
    folder = write(images(region(RECT, name="cat"), point))
    with pytest.warns(UserWarning, match=r"1 unread shape: a\.png: region 1: point"):
        assert len(from_via(folder).records[0].labels) == 1
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(ValueError, match=r"VIA 1 or 2.*other\.json"):
        from_via(tmp_path / "other.json")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"region_shape_attributes.*\['a', 'b'\]"):
        from_via(tmp_path / "other.csv")
    with pytest.raises(FileNotFoundError, match=r"1 missing image: .*gone\.png"):
        from_via(write(images(region(RECT, name="cat"), second="gone.png")))


def test_projects_of_one_image_each_are_one_dataset(tmp_path):
    """Beside a project without regions, such as a template."""
    for name in ("p_1", "p_2", "p_3"):
        (tmp_path / "data").mkdir(exist_ok=True)
        save_image(tmp_path / "data" / f"{name}.png")
        box = {"name": "rect", "x": 1, "y": 2, "width": 3, "height": 4}
        region = {"shape_attributes": box, "region_attributes": {"kind": name}}
        images = {"a": {"filename": f"{name}.png", "regions": [region]}}
        content = {"_via_settings": {}, "_via_img_metadata": images}
        (tmp_path / "data" / f"via_{name}.json").write_text(json.dumps(content))
    images = {"a": {"filename": "p_1.png", "regions": []}}
    content = {"_via_settings": {}, "_via_img_metadata": images}
    (tmp_path / "template.json").write_text(json.dumps(content))
    splits = load_splits(tmp_path)
    assert {name: len(data) for name, data in splits.items()} == {"train": 3}
    assert splits["train"].class_names == ("p_1", "p_2", "p_3")
    # Two files of the same image are two ways to annotate it.
    region["region_attributes"] = {"kind": "other"}
    images = {"a": {"filename": "p_3.png", "regions": [region]}}
    (tmp_path / "data" / "more.json").write_text(json.dumps(images))
    assert len(via_readers(tmp_path / "data")) == 4


def test_lines_alone_are_told(write):
    line = {"name": "polyline", "all_points_x": [1, 9], "all_points_y": [2, 4]}
    folder = write(images(*[region(line, name="road")] * 31))
    with pytest.raises(ValueError, match="31 unread shapes: a.png: .*polyline.*draw"):
        from_via(folder / "via_region_data.json")


def test_of_two_files_of_the_same_images_in_a_split_that_with_more_boxes_is_read(
    tmp_path,
):
    few = images(region(RECT, species="cat"))
    many = images(*REGIONS)
    for split, name, content in (
        ("train", "annotations.json", few),
        ("train", "train.json", many),
        ("val", "a.json", many),
        ("val", "b.json", images(*REGIONS, second="c.png")),
    ):
        for image in ("a.png", "b.png", "c.png"):
            save_image(tmp_path / split / image)
        (tmp_path / split / name).write_text(json.dumps(content))
    said = r"'annotations\.json' has the same images as 'train\.json': 1 box there, 2"
    with pytest.warns(UserWarning, match=rf"{said} here \(not read\)"):
        splits = load_splits(tmp_path)
    assert list(splits) == ["train", "val_a", "val_b"]
    assert len(splits["train"].records[0].labels) == 2
    kinds = [problem.kind for problem in splits["train"].problems]
    assert kinds == ["repeated annotation file", "unlisted images"]  # c.png


@pytest.mark.parametrize("named", ["via_region_data.json", "json/via.json"])
def test_copies_of_an_image_are_one_image(tmp_path, named):
    file = tmp_path / named
    file.parent.mkdir(exist_ok=True)
    content = images(region(RECT, species="cat"))
    file.write_text(json.dumps({"a.png99": content["a.png99"]}))
    first = save_image(tmp_path / "IMAGES of May" / "a.png")
    other = save_image(tmp_path / "IMAGES ML" / "a.png")
    assert len(from_via(file)) == 1
    assert from_via(file).records[0].image in (str(first), str(other))
    save_image(other, (30, 30))
    with pytest.raises(FileNotFoundError, match="2 images have that name"):
        from_via(file)


LINE = {
    "name": "polyline",
    "all_points_x": [10, 30, 30, 10, 11],
    "all_points_y": [5, 5, 15, 15, 6],
}


def test_a_line_that_ends_where_it_begins_is_an_outline(write):
    open_line = LINE | {"all_points_y": [5, 5, 15, 15, 15]}
    content = images(region(LINE, species="cat"), region(open_line, species="cat"))
    with pytest.warns(UserWarning) as told:
        dataset = from_via(write(content))
    assert dataset.records[0].boxes_xywh.tolist() == [[10, 5, 20, 10]]
    kinds = sorted(problem.kind for problem in dataset.problems)
    assert kinds == ["closed lines", "unread shape"]
    said = " ".join(str(warning.message) for warning in told)
    assert "1 of 2 polylines close, or nearly so (read as outlines)" in said


@pytest.mark.parametrize(
    "others, is_read",
    [(["cat"] * 9, True), (["cat", "dog"] * 5, False), (["cat"], False)],
)
def test_few_regions_without_a_class_are_of_the_only_one(write, others, is_read):
    regions = [region(RECT, species=name) for name in others]
    folder = write(images(*regions, region(RECT)))
    if not is_read:
        with pytest.raises(ValueError, match="must have one value of 'species'"):
            from_via(folder)
        return
    with pytest.warns(
        UserWarning, match="1 of 10 regions has no 'species', so the class 'cat'"
    ):
        dataset = from_via(folder)
    assert dataset.records[0].labels.tolist() == [0] * 10
    assert dataset.class_names == ("cat",)
