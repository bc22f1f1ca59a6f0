"""Repositories of readers of tables and txt files, as small copies.

See `test_cloned.py`.
"""

import pytest
from support.cloned_files import put

from effdet_keras.data import load


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
