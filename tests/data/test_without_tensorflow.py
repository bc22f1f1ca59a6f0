"""Readers, writers, the dataset and `check` work where TensorFlow is not installed."""

import json

import numpy as np
import pytest
from support import programs

EACH_FORMAT = """
import sys
sys.modules["tensorflow"] = None
import json
import numpy as np
import effdet_keras as ek
from effdet_keras.extras.tfds import from_tfds

folder = sys.argv[1]
train, valid = ek.data.write_shapes(f"{folder}/coco", num_train=4, num_valid=2,
                                    image_size=32)
for to in ("voc", "yolo", "csv"):
    ek.data.convert(f"{folder}/coco", f"{folder}/{to}", to)
for format in ("coco", "voc", "yolo", "csv"):
    dataset = ek.data.load(f"{folder}/{format}", "train")
    assert len(dataset) == 4, dataset
    assert dataset.class_names == train.class_names
    assert dataset[1]["image"].shape == (32, 32, 3)
    assert "4 images of 32x32" in dataset.summary()
    assert len(json.dumps(dataset.to_coco())) > 100
    assert [len(part) for part in dataset.split(0.5)] == [2, 2]
    assert ek.data.check(dataset).ok
image = np.zeros((32, 48, 3), "uint8")
examples = [{"image": image, "objects": {"bbox": [[0.2, 0.5, 0.5, 1.0]], "label": [0]}}]
assert len(from_tfds(examples, class_names=["cat"])) == 1
assert len(ek.data.from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])) == 1
images, truth = next(iter(train.batches(2, image_size=32)))
assert images.shape == (2, 32, 32, 3) and truth["boxes"].shape[2] == 4
assert sys.modules["tensorflow"] is None
print("done")
"""


@pytest.mark.extra_packages
@pytest.mark.parametrize("backend", ["jax"])
def test_every_format_is_read_and_written_without_tensorflow(tmp_path, backend):
    pytest.importorskip(backend)
    said = programs.run_alone("-c", EACH_FORMAT, tmp_path, KERAS_BACKEND=backend)
    assert "done" in said


FINE_TUNE = """
import sys
sys.modules["tensorflow"] = None
import json, pathlib
import effdet_keras as ek
from support.tiny_run import tiny_run

folder = pathlib.Path(sys.argv[1])
train, valid = ek.data.write_shapes(folder / "coco", num_train=4, num_valid=2,
                                    image_size=64)
result = ek.fine_tune({"train": train, "val": valid}, out=folder / "run", verbose=0,
                      **tiny_run(steps=1))
files = sorted(path.name for path in (folder / "run").iterdir())
print(json.dumps([result.numbers["AP"], files]))
"""


@pytest.mark.extra_packages
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_dataset_trains_without_tensorflow(tmp_path, backend):
    """Validation, evaluation, reports, and a training that is resumed in an epoch."""
    pytest.importorskip(backend)
    program = programs.SUPPORT / "without_tensorflow.py"
    variables = {
        "KERAS_BACKEND": backend,
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),  # the same step thrice
    }
    said = programs.run_alone(program, tmp_path, **variables)
    seen = json.loads(said.splitlines()[-1])
    assert seen["backend"] == backend
    assert np.isfinite(seen["losses"]).all() and len(seen["losses"]) == 4
    assert np.isfinite(seen["history"]["val_loss"]).all()
    assert len(seen["history"]["AP"]) == 2
    assert seen["evaluated"] == pytest.approx(seen["history"]["val_loss"][1], rel=1e-4)
    # The step after the one at which it was ended, on the same images.
    np.testing.assert_allclose(seen["rest"][-1], seen["losses"][-1], rtol=1e-4)
    assert seen["difference"] < 1e-4
    assert seen["reports"] == [1, 1]


@pytest.mark.extra_packages
def test_a_run_needs_no_tensorflow(tmp_path):
    pytest.importorskip("torch")
    said = programs.run_alone("-c", FINE_TUNE, tmp_path, KERAS_BACKEND="torch")
    ap, files = json.loads(said.splitlines()[-1])
    assert 0 <= ap <= 1 and {"best.keras", "finished.json"} & set(files)
