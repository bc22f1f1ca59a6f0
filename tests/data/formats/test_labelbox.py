"""`from_labelbox`: exports of Labelbox, of their first and their second version."""

import json

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras import data
from effdet_keras.data.formats.labelbox import from_labelbox

BOX = {"left": 5, "top": 2, "width": 20, "height": 10}
CORNERS = [{"x": 5, "y": 2}, {"x": 25, "y": 4}, {"x": 9.5, "y": 12}]
LINE = [{"x": 1, "y": 2}, {"x": 3, "y": 4}]


def first(name="a.png", *objects, **fields):
    """A row of the first version; its objects have the box, or the outline, of each."""
    label = {"objects": list(objects), "classifications": []}
    address = f"https://storage.example/4f-{name}"
    row = {"ID": f"label-{name}", "DataRow ID": name, "Labeled Data": address}
    return row | {"Label": label, "External ID": name, "Skipped": False} | fields


def second(name="a.png", *objects, **image):
    """A row of the second version."""
    label = {"annotations": {"objects": list(objects), "classifications": []}}
    projects = {"p1": {"name": "Pets", "labels": [label]}}
    image = {"id": name, "external_id": name, "row_data": "https://x/y.png"} | image
    return {"data_row": image, "media_attributes": {}, "projects": projects}


CAT = {"title": "Cat", "value": "cat", "bbox": BOX}
ANT = {"title": "Ant", "value": "ant", "polygon": CORNERS}
CAT_2 = {"name": "Cat", "value": "cat", "bounding_box": BOX}
ANT_2 = {"name": "Ant", "value": "ant", "polygon": CORNERS}
POINT = {"name": "Nose", "annotation_kind": "ImagePoint", "point": {"x": 1, "y": 2}}


def as_lines(rows):
    return "\n".join(map(json.dumps, rows)) + "\n"


@pytest.fixture
def write(tmp_path):
    def write(rows, name="export.json", images=("a.png", "b.png"), text=json.dumps):
        path = tmp_path / name
        for image in images:
            save_image(path.parent / image)
        path.write_text(text(rows))
        return tmp_path

    return write


@pytest.mark.smoke
@pytest.mark.parametrize(
    "name, text", [("export.json", json.dumps), ("export.ndjson", as_lines)]
)
@pytest.mark.parametrize(
    "rows",
    [
        [first("a.png", CAT, ANT), first("b.png")],
        [second("a.png", CAT_2, ANT_2), second("b.png")],
    ],
)
def test_boxes_and_polygons_of_both_versions(write, capsys, rows, name, text):
    dataset = data.load(write(rows, name, text=text))
    assert "is Labelbox: split train" in capsys.readouterr().out
    assert dataset.class_names == ("Ant", "Cat")
    assert [record.file_name for record in dataset.records] == ["a.png", "b.png"]
    np.testing.assert_array_equal(
        dataset.records[0].boxes_xywh, [[5, 2, 20, 10], [5, 2, 20, 10]]
    )
    np.testing.assert_array_equal(dataset.records[0].labels, [1, 0])
    assert len(dataset.records[1].labels) == 0


def test_polygons_are_kept_for_masks(write):
    dataset = from_labelbox(write([first("a.png", CAT, ANT)]), masks=True)
    box, outline = dataset.records[0].shapes
    assert box is None
    np.testing.assert_array_equal(outline[0], [5, 2, 25, 4, 9.5, 12])


@pytest.mark.parametrize(
    "row, wanted",
    [
        (second("a.png", CAT_2, external_id=None, global_key="sub/a.png"), "a.png"),
        (second("a.png", CAT_2, external_id="pets no. 7"), "y.png"),
        (first("a.png", CAT) | {"External ID": None}, "4f-a.png"),
    ],
)
def test_images_are_found_by_any_of_their_names(write, row, wanted):
    dataset = from_labelbox(write([row], images=[wanted]))
    assert dataset.records[0].file_name == wanted


def test_missing_images_are_named_by_their_external_id(write):
    with pytest.raises(FileNotFoundError, match=r"1 missing image: .*gone\.png"):
        from_labelbox(write([first("a.png", CAT), first("gone.png", CAT)]))


def test_folders_of_splits_have_a_file_each(write):
    for split in ("train", "valid"):
        folder = write([first("a.png", CAT)], f"{split}/export.json", ["a.png"])
    assert list(data.load_splits(folder)) == ["train", "valid"]


@pytest.mark.parametrize(
    "row",
    [
        first("b.png", CAT, Skipped=True),
        first("b.png", Label={}),
        second("b.png") | {"projects": {"p": {"labels": []}}},
        second("b.png") | {"projects": {}},
    ],
)
def test_images_without_a_label_are_left_out_with_a_warning(write, row):
    with pytest.warns(UserWarning, match=r"1 unlabelled image: b\.png: it has no"):
        dataset = from_labelbox(write([first("a.png", CAT), row]))
    assert [record.file_name for record in dataset.records] == ["a.png"]
    with pytest.raises(ValueError, match="no row with a label"):
        from_labelbox(write([row]))


@pytest.mark.parametrize("is_first_version", [True, False])
def test_the_first_of_several_labels_counts(write, is_first_version):
    if is_first_version:
        rows = [first("a.png", CAT), first("a.png", CAT, ANT)]
    else:
        rows = [second("a.png", CAT_2)]
        rows[0]["projects"]["p1"]["labels"] *= 2
    dataset = from_labelbox(write(rows))
    assert len(dataset) == 1 and len(dataset.records[0].labels) == 1
    assert [problem.kind for problem in dataset.problems] == ["several labels"]


def test_an_empty_label_gives_way_to_one_with_objects(write):
    row, empty = second("a.png", CAT_2), second("a.png")
    row["projects"] = {"p0": empty["projects"]["p1"], **row["projects"]}
    dataset = from_labelbox(write([row, second("b.png")]))
    assert [len(record.labels) for record in dataset.records] == [1, 0]
    assert dataset.problems == ()


def test_points_and_masks_are_left_out_with_a_warning(write):
    mask = {"title": "Cat", "instanceURI": "https://api.example/mask"}
    with pytest.warns(UserWarning, match=r"2 unread shapes: a\.png: ImagePoint of 'No"):
        dataset = from_labelbox(write([second("a.png", POINT, CAT_2, mask)]))
    assert len(dataset.records[0].labels) == 1


@pytest.mark.parametrize(
    "bad",
    [
        {**CAT, "bbox": {**BOX, "left": None}},
        {**CAT, "bbox": []},
        {"bbox": BOX},
        {**ANT, "polygon": []},
        {**ANT, "polygon": [{"x": 1}]},
    ],
)
def test_bad_objects_are_named(write, bad):
    folder = write([first("a.png", CAT, bad)])
    with pytest.raises(ValueError, match=r"1 bad box: a\.png: a name and the finite"):
        from_labelbox(folder)
    with pytest.warns(UserWarning, match="1 bad box"):
        dataset = from_labelbox(folder, on_error="skip")
    assert len(dataset.records[0].labels) == 1


@pytest.mark.parametrize(
    "label", [{"Cat": "POLYGON ((1 2, 3 4, 5 6))"}, {"Cat": [{"geometry": LINE}]}]
)
def test_exports_without_objects_are_refused_with_the_cure(write, label):
    with pytest.raises(ValueError, match="since 2020: export the project again"):
        data.load(write([first("a.png", Label=label)]))


def test_a_broken_line_is_named(write):
    folder = write([second("a.png", CAT_2)], "a.ndjson", text=as_lines)
    with (folder / "a.ndjson").open("a") as file:
        file.write('{"data_row": ')
    with pytest.raises(ValueError, match=r"a\.ndjson: line 2 is not valid json"):
        data.load(folder)
