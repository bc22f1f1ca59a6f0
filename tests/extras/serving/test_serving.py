"""`effdet-keras serve`, in this process: what it answers, and what it refuses."""

import asyncio
import io
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.small_datasets import bomb, encoded
from support.tiny import lively_model

pytest.importorskip("starlette", reason="needs the extra `serve`")
pytest.importorskip("httpx", reason="Starlette's TestClient needs httpx")
from starlette.testclient import TestClient

from effdet_keras.extras.serving.app import create_app
from effdet_keras.extras.serving.command import Limits
from effdet_keras.extras.serving.service import Batcher, DetectionService, Engine
from effdet_keras.letterbox import has_area
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.predictor import Predictor

pytestmark = pytest.mark.tensorflow

LIMITS = Limits(
    max_bytes=50_000, max_pixels=20_000, max_batch=2, max_queue=2, max_requests=3
)


@pytest.fixture(scope="module")
def model():
    return lively_model()


@pytest.fixture(scope="module")
def models(model):
    """What `open_model` returns next."""
    return [Predictor(model)]


@pytest.fixture(scope="module")
def service(models):
    def open_model():
        if not models:
            raise ValueError("no model")
        return models[-1]

    return DetectionService(open_model, LIMITS)


@pytest.fixture(scope="module")
def client(service):
    with TestClient(create_app(service)) as client:
        yield client


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(5).integers(0, 256, (40, 56, 3), "uint8")


@pytest.fixture(scope="module")
def data(image):
    return encoded(image)


@pytest.mark.smoke
def test_json_is_what_detect_finds(client, model, image, data):
    expected = model.detect(image, 0.4, verbose=0)
    expected = expected[has_area(expected.boxes)]
    assert len(expected)
    for sent in ({"content": data}, {"files": {"image": ("a.png", data)}}):
        answer = client.post("/detect?score=0.4", **sent)
        assert answer.status_code == 200, answer.text
        content = answer.json()
        assert (content["width"], content["height"]) == (56, 40)
        found = content["detections"]
        assert [d["label"] for d in found] == list(expected.names)
        np.testing.assert_allclose(
            [d["box"] for d in found], expected.boxes[:, [1, 0, 3, 2]], atol=0.02
        )
        np.testing.assert_allclose(
            [d["score"] for d in found], expected.scores, atol=1e-4
        )


def test_an_annotated_image_has_the_boxes_of_draw(client, model, image, data):
    expected = model.detect(image, 0.4, verbose=0)
    expected = expected[has_area(expected.boxes)].draw()
    answer = client.post("/detect?score=0.4&format=png", content=data)
    assert answer.headers["content-type"] == "image/png"
    drawn = np.asarray(Image.open(io.BytesIO(answer.content))).astype(int)
    assert drawn.shape == expected.shape
    assert (np.abs(drawn - expected).max(-1) > 2).mean() < 0.01
    jpeg = client.post("/detect?format=jpeg", content=data)
    assert Image.open(io.BytesIO(jpeg.content)).format == "JPEG"


@pytest.mark.parametrize(
    ("content", "status", "reason"),
    [
        (b"", 400, "empty"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 400, "not an image"),
        (bytes(50_001), 413, "more than 50,000 bytes"),
        (bomb(200, 101), 413, "200 x 101 pixels, and the limit is 20,000"),
        (
            bomb(20_000, 1),
            413,
            "20000 x 1 pixels, and the limit of each side is 16,384",
        ),
        (bomb(20_000, 20_000), 413, "far too many pixels, and the limit is 20,000"),
        (bomb(20, 20), 400, "cannot be decoded"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_image_is_refused_with_the_reason(client, content, status, reason):
    answer = client.post("/detect", content=content)
    assert answer.status_code == status
    assert reason in answer.json()["error"]
    assert " at 0x" not in answer.text  # no address of this process


def test_only_the_classes_that_were_asked_for_are_found(client, model, image, data):
    expected = model.detect(image, 0.2, verbose=0)
    expected = expected[has_area(expected.boxes)]
    known = model.class_names or tuple(map(str, range(model.config.num_classes)))
    found = sorted(set(expected.names))
    assert len(found) > 1
    for query, kept in (
        (f"classes={found[0]}", found[:1]),
        (f"classes={found[0]}, {found[1]}", found[:2]),
        (f"classes={found[0]}&classes={found[1]}", found[:2]),
    ):
        answer = client.post(f"/detect?score=0.2&{query}", content=data)
        labels = [one["label"] for one in answer.json()["detections"]]
        assert labels == [name for name in expected.names if name in kept], query
    for wrong in ("unicorn", "", ","):
        answer = client.post(f"/detect?classes={wrong}", content=data)
        assert answer.status_code == 400 and wrong not in known
        assert "`classes` must be" in answer.json()["error"]


@pytest.mark.parametrize("score", ["nan", "2", "much", "best"])
def test_a_bad_score_is_refused(client, data, score):
    answer = client.post(f"/detect?score={score}", content=data)
    assert answer.status_code == 400
    assert "score" in answer.json()["error"]


def test_other_types_fields_and_formats_are_refused(client, data):
    def post(path="/detect", **sent):
        return client.post(path, **sent).status_code

    assert post(data={"url": "http://127.0.0.1:1/cat.png"}) == 415
    assert post(files={"other": ("image.png", data)}) == 400
    two = [("image", ("a.png", data)), ("image", ("b.png", data))]
    assert post(files=two) == 400
    broken = {"Content-Type": "multipart/form-data; boundary=x"}
    assert post(content=b"--y\r\n", headers=broken) == 400
    assert post("/detect?format=tiff", content=data) == 400
    assert client.get("/detect").status_code == 405


def test_a_full_queue_is_a_503_and_no_other_answer_is_lost(
    client, service, data, monkeypatch
):
    gate, statuses = threading.Event(), []
    detect = service.engine.detect

    def slow(items):
        gate.wait(30)
        return detect(items)

    monkeypatch.setattr(service.engine, "detect", slow)

    def post():
        statuses.append(client.post("/detect", content=data))

    threads = [threading.Thread(target=post) for _ in range(9)]
    for thread in threads:
        thread.start()
    while len(statuses) < 6:  # 3 may be open: the others are refused at once
        gate.wait(0.01)
    gate.set()
    for thread in threads:
        thread.join()
    found = sorted(answer.status_code for answer in statuses)
    assert found == [200] * 3 + [503] * 6
    refused = next(answer for answer in statuses if answer.status_code == 503)
    assert refused.headers["retry-after"] == "1"


def test_a_new_model_answers_after_a_reload_and_a_bad_one_never(
    client, service, models, model, data
):
    def labels():
        found = client.post("/detect?score=0.4", content=data).json()["detections"]
        return {detection["label"] for detection in found}

    old = labels()
    newer = lively_model(class_names=("one", "two", "three"))
    models.append(Predictor(newer))
    assert client.portal.call(service.reload)
    new = labels()
    assert new and new <= {"one", "two", "three"} and not new & old
    kept = models.copy()
    models.clear()
    assert not client.portal.call(service.reload)
    assert labels() == new
    models.append(kept[0])
    assert client.portal.call(service.reload)
    assert labels() == old
    assert 'effdet_reloads_total{result="failed"} 1.0' in client.get("/metrics").text


def test_no_request_is_lost_while_a_new_model_comes(client, service, models, data):
    statuses, is_done = [], threading.Event()

    def post():
        while not is_done.is_set():
            statuses.append(client.post("/detect", content=data).status_code)

    threads = [threading.Thread(target=post) for _ in range(2)]
    for thread in threads:
        thread.start()
    engines = {service.engine}
    for _ in range(3):
        seen = len(statuses)
        assert client.portal.call(service.reload)
        engines.add(service.engine)
        while len(statuses) < seen + 4:
            is_done.wait(0.01)
    is_done.set()
    for thread in threads:
        thread.join()
    assert len(engines) == 4 and set(statuses) == {200}


def test_health_metrics_description_and_page(client, data):
    assert client.get("/health").json() == {"status": "ok"}
    client.post("/detect", content=data)
    metrics = client.get("/metrics").text
    assert 'effdet_requests_total{status="200"}' in metrics
    assert "effdet_requests_in_flight 0.0" in metrics
    assert "effdet_batch_images_count" in metrics
    assert client.get("/openapi.json").json()["openapi"] == "3.1.0"
    page = client.get("/")
    assert 'type="range"' in page.text
    assert "connect-src 'self'" in page.headers["content-security-policy"]


def test_a_batch_that_fails_leaves_the_next_alone():
    def work(items):
        if "bad" in items:
            raise ArithmeticError("bad")
        return items

    async def run():
        batcher = Batcher(work, Limits(max_batch=1, max_wait=0.0, max_queue=2))
        await batcher.start()
        with pytest.raises(ArithmeticError):
            await batcher.submit("bad")
        assert await batcher.submit("good") == "good"
        await batcher.close()

    asyncio.run(run())


class InPadding:
    """Finds one object in the padding below a wide image, and one in the image."""

    config = EfficientDetConfig(image_size=64, num_classes=1)
    class_names = category_ids = score_settings = None

    def predict_on_batch(self, images):
        count = len(images)
        boxes = np.float32([[40, 8, 60, 30], [4, 8, 12, 30]])
        return {
            "boxes": np.tile(boxes, (count, 1, 1)),
            "scores": np.tile(np.float32([0.9, 0.8]), (count, 1)),
            "labels": np.zeros((count, 2), "int32"),
            "num_detections": np.full(count, 2, "int32"),
        }


def test_a_file_with_a_batch_of_its_own_is_not_filled_up():
    detector, ran = InPadding(), []
    description = SimpleNamespace(batch_size=1)
    detector.runtime = SimpleNamespace(description=description)
    detect = detector.predict_on_batch

    def counted(images, *more):
        ran.append(len(images))
        return detect(images, *more)

    detector.predict_on_batch = counted
    engine = Engine(Predictor(detector), 8)
    engine.warm_up()
    item = engine.prepare(encoded(np.zeros((30, 90, 3), "uint8")), 0.0, LIMITS)
    assert len(engine.detect([item] * 5)) == 5
    assert ran == [1, 5]
    description.batch_size = None
    assert len(Engine(Predictor(detector), 8).detect([item] * 5)) == 5
    assert ran == [1, 5, 8]


def test_more_pixels_than_pillow_decodes_cannot_be_asked_for():
    assert Image.MAX_IMAGE_PIXELS == 89_478_485
    assert Limits(max_pixels=89_478_485).max_pixels
    with pytest.raises(ValueError, match="`max_pixels` must be .*89478485"):
        Limits(max_pixels=200_000_000)


def test_what_is_found_beside_the_image_is_left_out():
    engine = Engine(Predictor(InPadding()), 1)
    data = encoded(np.zeros((30, 90, 3), "uint8"))
    (found,) = engine.detect([engine.prepare(data, 0.0, LIMITS)])
    assert found.scores.tolist() == [np.float32(0.8)]
    assert ((found.boxes[:, 2:] - found.boxes[:, :2]) > 0).all()
