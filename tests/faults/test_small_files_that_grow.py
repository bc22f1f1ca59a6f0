"""Small files that would fill the memory, hang, or search a disk: refused at once."""

import numpy as np
import pytest
from PIL import Image

import effdet_keras as ek
from effdet_keras.extras.fusion import detect_augmented
from effdet_keras.images import read_image


@pytest.mark.smoke
def test_an_image_of_far_more_pixels_than_pillow_opens(tmp_path, monkeypatch):
    Image.new("1", (1200, 1000)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500_000)
    with pytest.raises(ValueError, match="a.png.*1200000 pixels"):
        read_image(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1_200_000)
    assert read_image(tmp_path / "a.png").shape == (1000, 1200, 3)


def test_views_that_are_a_thousand_times_as_large():
    with pytest.raises(ValueError, match="at most 8.*1000"):
        detect_augmented(lambda images: [], np.zeros((8, 8, 3), "uint8"), scales=[1000])


def test_more_files_than_images(tmp_path):
    images = [np.zeros((8, 8, 3), "uint8")] * 2
    dataset = ek.data.from_arrays(images, [[]] * 2, [[]] * 2, ["cat"])
    ek.data.write_tfrecord(dataset, tmp_path / "set", num_shards=100_000)
    assert len(list((tmp_path / "set").glob("*tfrecord*"))) == 2
