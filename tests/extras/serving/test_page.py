"""The page at / in Chromium: images are dropped, boxes are drawn, the slider works."""

import numpy as np
import pytest
from PIL import Image
from support.chromium import Page, find_chromium
from support.live_server import live_server
from support.tiny import LITE0, lively_model

from effdet_keras.extras.serving.command import Limits
from effdet_keras.extras.serving.service import DetectionService
from effdet_keras.letterbox import has_area
from effdet_keras.predictor import Predictor

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium here"),
]

CAPTIONS = "[...document.querySelectorAll('figcaption')].map(c => c.textContent)"
PIXELS = """(canvas => [...canvas.getContext('2d')
    .getImageData(0, 0, canvas.width, canvas.height).data])
    (document.querySelector('canvas'))"""


@pytest.fixture(scope="module")
def model():
    return lively_model(backbone=LITE0)


@pytest.fixture
def address(model):
    service = DetectionService(lambda: Predictor(model), Limits(max_batch=2))
    with live_server(service) as port:
        yield f"http://127.0.0.1:{port}/"


def load_rgb(page):
    return np.reshape(page.value(PIXELS), (40, 56, 4))[..., :3]


def move_slider(page, score):
    page.value(f"score.value = '{score}'; score.dispatchEvent(new Event('input')); 0")


def test_images_are_dropped_and_the_slider_chooses_boxes(model, address, tmp_path):
    image = np.random.default_rng(5).integers(0, 256, (40, 56, 3), "uint8")
    Image.fromarray(image).save(tmp_path / "street.png")
    found = model.detect(image, 0.05, verbose=0)
    found = found[has_area(found.boxes)]
    counts = {score: int((found.scores >= score).sum()) for score in (0.3, 0.6, 1)}
    assert counts[0.3] > counts[0.6] > counts[1] == 0
    with Page(address, tmp_path / "browser") as page:
        page.drop(tmp_path / "street.png")
        page.until(f"{CAPTIONS}.length == 1")
        assert page.value(CAPTIONS) == [f"street.png: {counts[0.3]} found"]
        assert np.abs(load_rgb(page).astype(int) - image).max() > 50  # boxes
        move_slider(page, 0.6)
        assert page.value(CAPTIONS) == [f"street.png: {counts[0.6]} found"]
        assert page.value("shown.textContent") == "0.60"
        move_slider(page, 1)
        assert page.value(CAPTIONS) == ["street.png: 0 found"]
        np.testing.assert_array_equal(load_rgb(page), image)


def test_a_bad_image_is_told_and_the_others_go_on(address, tmp_path):
    name = '<img src=x onerror="document.title=1">.png'
    (tmp_path / name).write_bytes(b"no image")
    Image.new("RGB", (20, 30)).save(tmp_path / "good.png")
    with Page(address, tmp_path / "browser") as page:
        page.drop(tmp_path / name, tmp_path / "good.png")
        page.until(f"{CAPTIONS}.length == 1")
        assert "not an image in one of these" in page.value("message.textContent")
        assert page.value("message.textContent").startswith(name)
        # A name of a file is text, whatever it holds.
        assert page.value("document.title") == "Detection"
        assert page.value("document.querySelectorAll('img').length") == 0
