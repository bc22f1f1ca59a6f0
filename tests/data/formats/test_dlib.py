"""`from_dlib`: the xml files of dlib's program imglab."""

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras import data
from effdet_keras.data.formats.dlib import from_dlib

FILE = """<?xml version='1.0' encoding='ISO-8859-1'?>
<?xml-stylesheet type='text/xsl' href='image_metadata_stylesheet.xsl'?>
<dataset>
<name>imglab dataset</name>
<comment>Created by imglab tool.</comment>
<images>
{}</images>
</dataset>
"""
SIDES = "top='2' left='5' width='20' height='10'"
CAT = f"<box {SIDES}><label>cat</label><part name='0' x='7' y='3'/></box>"


def write(folder, images, name="training.xml"):
    for file in images:
        save_image(folder / file.replace("\\", "/"))
    rows = [
        f"<image file='{f}'>{''.join(boxes)}</image>" for f, boxes in images.items()
    ]
    (folder / name).write_text(FILE.format("\n".join(rows)), encoding="latin-1")


@pytest.mark.smoke
def test_boxes_and_splits(tmp_path, capsys):
    ant = f"<box {SIDES} ignore='1'><label>\xe9mu</label></box>"
    write(tmp_path, {"faces/b.png": [CAT, ant], "faces\\a.png": []})
    write(tmp_path, {"other/c.png": [CAT]}, "testing.xml")
    splits = data.load_splits(tmp_path)
    assert "dlib xml: splits test, train" in capsys.readouterr().out
    train, test = splits["train"], splits["test"]
    assert train.class_names == test.class_names == ("cat", "\xe9mu")
    assert train.records[0].image == str(tmp_path / "faces" / "b.png")
    np.testing.assert_array_equal(train.records[0].boxes_xywh, [[5, 2, 20, 10]] * 2)
    assert train.records[0].is_crowd.tolist() == [False, True]
    assert len(train.records[1].labels) == 0 and len(test) == 1
    assert len(from_dlib(tmp_path / "testing.xml")) == 1


def test_boxes_without_a_label_are_of_one_class(tmp_path):
    write(tmp_path, {"a.png": [f"<box {SIDES}/>"], "b.png": []})
    with pytest.warns(UserWarning, match="1 box has no class: it is called 'object'"):
        assert data.load(tmp_path).class_names == ("object",)
    named = data.load(tmp_path, class_names=["robot"])
    assert named.class_names == ("robot",) and named.records[0].labels == [0]


@pytest.mark.parametrize("bad", ["<box top='2' left='5'/>", CAT.replace("20", "2O")])
def test_bad_boxes_are_named(tmp_path, bad):
    write(tmp_path, {"a.png": [CAT, bad]})
    with pytest.raises(ValueError, match=r"1 bad box: a\.png: the finite left, top"):
        from_dlib(tmp_path)


def test_an_image_without_a_file_is_one_unreadable_image(tmp_path):
    write(tmp_path, {"a.png": [CAT]})
    path = tmp_path / "training.xml"
    path.write_text(path.read_text().replace("</images>", "<image>\n</image></images>"))
    with pytest.raises(ValueError, match=r"1 unreadable annotation.*image 2: .*`file`"):
        from_dlib(tmp_path)
    with pytest.warns(UserWarning, match="unreadable annotation"):
        assert len(from_dlib(tmp_path, on_error="skip")) == 1


@pytest.mark.parametrize(
    "text",
    ["<dataset><images><image", "<dataset/>", "<annotation><images/></annotation>"],
)
def test_another_file_is_explained(tmp_path, text):
    (tmp_path / "a.xml").write_text(text)
    with pytest.raises(ValueError, match=r"expects an xml file of imglab.*a\.xml"):
        from_dlib(tmp_path / "a.xml")
