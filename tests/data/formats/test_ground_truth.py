"""`from_ground_truth`: manifests of Amazon's labelling jobs."""

import json

import numpy as np
import pytest
from support.small_datasets import save_image

from effdet_keras import data
from effdet_keras.data.formats.ground_truth import from_ground_truth

BOX = {"class_id": 1, "left": 5, "top": 2, "width": 20, "height": 10}


def row(name, *boxes):
    size = [{"width": 40, "height": 20, "depth": 3}]
    return {
        "source-ref": f"s3://bucket/pets/{name}",
        "pets-job": {"image_size": size, "annotations": list(boxes)},
        "pets-job-metadata": {
            "objects": [{"confidence": 0.9} for _ in boxes],
            "class-map": {"1": "cat", "0": "dog"},
            "type": "groundtruth/object-detection",
            "human-annotated": "yes",
        },
    }


@pytest.fixture
def write(tmp_path):
    for name in ("a.png", "b.png"):
        save_image(tmp_path / "images" / name)

    def write(*rows):
        text = "".join(f"{json.dumps(r)}\n" for r in rows)
        (tmp_path / "output.manifest").write_text(text)
        return tmp_path

    return write


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_ends_of_lines_within_texts_are_none(write, end):
    rows = [
        {**row(name, BOX), "note": "a\u2028b\u0085c"} for name in ("a.png", "b.png")
    ]
    folder = write()
    text = end.join(json.dumps(r, ensure_ascii=False) for r in rows)
    (folder / "output.manifest").write_bytes(text.encode())
    assert len(from_ground_truth(folder)) == 2


@pytest.mark.smoke
def test_boxes_and_the_class_map(write, capsys):
    folder = write(row("b.png", BOX, {**BOX, "class_id": 0}), row("a.png"))
    dataset = data.load(folder)
    assert "is Ground Truth manifest: split train" in capsys.readouterr().out
    assert dataset.class_names == ("dog", "cat")
    assert dataset.records[0].image == str(folder / "images" / "b.png")
    np.testing.assert_array_equal(dataset.records[0].boxes_xywh, [[5, 2, 20, 10]] * 2)
    np.testing.assert_array_equal(dataset.records[0].labels, [1, 0])
    assert len(dataset.records[1].labels) == 0


def test_lines_that_were_not_labelled_and_bad_ones(write, tmp_path):
    folder = write(row("a.png", BOX), {"source-ref": "s3://bucket/pets/b.png"})
    with pytest.warns(UserWarning, match=r"1 unlabelled image: b\.png: line 2"):
        assert len(from_ground_truth(folder)) == 1
    for bad in ({**BOX, "class_id": 7}, {**BOX, "left": None}, {"class_id": 0}):
        folder = write(row("a.png", BOX, bad))
        with pytest.raises(
            ValueError, match=r"1 (bad box|unknown class): a\.png: line 1: a `class_id`"
        ):
            from_ground_truth(folder)
    folder = write(row("a.png", BOX), {"a": 1})
    with pytest.raises(ValueError, match="line 2: .*`source-ref`"):
        from_ground_truth(folder)
    (tmp_path / "output.manifest").write_text("{'a'")
    with pytest.raises(ValueError, match=r"output\.manifest', line 1"):
        from_ground_truth(tmp_path / "output.manifest")
