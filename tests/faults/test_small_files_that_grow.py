"""Small files that would fill the memory, hang, or search a disk: refused at once."""

import json
import zipfile

import numpy as np
import pytest
from PIL import Image

import effdet_keras as ek
from effdet_keras.extras.fusion import detect_augmented
from effdet_keras.images import read_image


def archive_of(path, weights, compression=zipfile.ZIP_DEFLATED, **settings):
    """A `.keras` file with these bytes for weights."""
    model = {"registered_name": "effdet_keras>EfficientDet", "config": settings}
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("config.json", json.dumps(model))
        archive.writestr("metadata.json", "{}")
        archive.writestr("model.weights.h5", weights)
    return path


def test_an_image_of_more_pixels_than_pillow_would_warn_of(tmp_path, monkeypatch):
    Image.new("1", (1200, 1000)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1_000_000)
    with pytest.raises(
        ValueError, match="a.png.*1200 x 1000.*MAX_IMAGE_PIXELS = 1200000"
    ):
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


@pytest.mark.parametrize(
    "info", ["[]", "3", "{}", '{"format": "1", "versions": {}}', '{"format": 1}']
)
def test_a_broken_description_of_an_archive(tmp_path, info):
    path = archive_of(tmp_path / "cats.keras", b"")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("archive.json", info)
    with pytest.raises(ValueError, match="cats.keras.*'archive.json' is not ours"):
        ek.EfficientDet.from_archive(path)
