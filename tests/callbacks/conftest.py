"""A tiny detector and a tiny dataset for the callbacks."""

import json

import keras
import numpy as np
import pytest
from PIL import Image
from support.tiny import tiny_model


@pytest.fixture(scope="session")
def valid(tmp_path_factory):
    """Five images of different sizes, the fourth empty; category ids 5, 7 and 9."""
    from effdet_keras import data

    folder = tmp_path_factory.mktemp("valid")
    random = np.random.default_rng(1)
    sizes = [(64, 64), (48, 80), (100, 60), (64, 64), (30, 30)]
    boxes = [  # category id, then yxyx
        [(5, 4, 4, 40, 36), (7, 10, 30, 60, 60)],
        [(9, 8, 8, 40, 70)],
        [(7, 50, 10, 90, 50), (5, 2, 2, 30, 30)],
        [],
        [(9, 3, 5, 28, 25)],
    ]
    for number, size in enumerate(sizes):
        pixels = random.integers(0, 255, (*size, 3), "uint8")
        Image.fromarray(pixels).save(folder / f"{number}.png")
    truth = {
        "images": [
            {"id": 40 + n, "file_name": f"{n}.png", "height": h, "width": w}
            for n, (h, w) in enumerate(sizes)
        ],
        "annotations": [
            {"image_id": 40 + n, "category_id": c, "bbox": [x0, y0, x1 - x0, y1 - y0]}
            for n, rows in enumerate(boxes)
            for c, y0, x0, y1, x1 in rows
        ],
        "categories": [
            {"id": i, "name": name} for i, name in ((5, "cat"), (7, "dog"), (9, "bird"))
        ],
    }
    for number, annotation in enumerate(truth["annotations"], start=1):
        area = annotation["bbox"][2] * annotation["bbox"][3]
        annotation.update(id=number, area=area, iscrowd=0)
    (folder / "valid.json").write_text(json.dumps(truth))
    return data.from_coco(folder / "valid.json", folder)


@pytest.fixture(scope="session")
def train():
    """Four images and their truth, as `fit` takes arrays."""
    random = np.random.default_rng(2)
    images = random.uniform(0, 255, (4, 64, 64, 3)).astype("float32")
    boxes = np.tile(np.float32([[4, 4, 40, 36]]), (4, 1, 1))
    return images, {"boxes": boxes, "labels": np.zeros((4, 1), "int32")}


@pytest.fixture(scope="session")
def shared_model():
    """Compiled once; tests get it by `model`, with its first weights."""
    model = tiny_model()
    # An optimizer of our own: the recipe's schedule is traced anew at each fit.
    model.compile(optimizer=keras.optimizers.SGD(0.01))
    return model


@pytest.fixture
def model(shared_model):
    first = [np.array(value) for value in shared_model.get_weights()]
    state = [np.array(v) for v in shared_model.optimizer.variables]
    shared_model.averages.reset()
    yield shared_model
    shared_model.averages.restore()
    shared_model.set_weights(first)
    for variable, value in zip(shared_model.optimizer.variables, state):
        variable.assign(value)
    shared_model.stop_training = False
