"""Images that two splits share, by their files."""

import numpy as np
import pytest
from PIL import Image
from support.small_datasets import record_of

from effdet_keras.data import shared_images as module
from effdet_keras.data.shared_images import shared_images


@pytest.fixture
def write(tmp_path):
    def write(split, *values):
        """Images of one grey each, `0/1.bmp`, `1/1.bmp`, ..., all of one size."""
        records = []
        for number, value in enumerate(values):
            path = tmp_path / split / str(number) / "1.bmp"
            path.parent.mkdir(parents=True)
            Image.fromarray(np.full((4, 6, 3), value, np.uint8)).save(path)
            records.append(record_of(path, (4, 6), number))
        return records

    return write


def test_files_of_one_name_and_size_are_read_once_each(write, monkeypatch):
    first, second = write("train", *range(10)), write("val", 3, 77, 0, 78)
    read, digest = [], module._digest
    monkeypatch.setattr(module, "_digest", lambda p: read.append(p) or digest(p))
    assert shared_images(first, second) == [0, 2]
    assert sorted(read) == sorted(record.image for record in (*first, *second))


def test_files_of_another_name_or_size_are_not_read(write, tmp_path, monkeypatch):
    first, second = write("train", 0, 1), write("val", 0)
    renamed = tmp_path / "val/2.bmp"
    (tmp_path / "val/0/1.bmp").rename(renamed)
    monkeypatch.setattr(module, "_digest", lambda path: pytest.fail("it is read"))
    assert shared_images(first, [record_of(renamed, (4, 6), 1)]) == []
    larger = tmp_path / "val/0/1.bmp"
    larger.write_bytes(renamed.read_bytes() + b"0")
    assert shared_images(first, second) == []
    larger.unlink()  # a file that is gone is no copy
    assert shared_images(first, second) == []
