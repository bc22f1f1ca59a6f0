"""Readers, writers, the dataset and `check` work where TensorFlow is not installed."""

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
try:
    train.batches(2, image_size=32)
except ek.errors.MissingPackageError as error:
    print("batches:", error)
assert sys.modules["tensorflow"] is None
print("done")
"""


@pytest.mark.extra_packages
@pytest.mark.parametrize("backend", ["jax"])
def test_every_format_is_read_and_written_without_tensorflow(tmp_path, backend):
    pytest.importorskip(backend)
    said = programs.run_alone("-c", EACH_FORMAT, tmp_path, KERAS_BACKEND=backend)
    assert "done" in said
    cure = '`DetectionDataset.batches` needs tensorflow: pip install "tensorflow"'
    assert cure in said


TRAINING = """
import sys
sys.modules["tensorflow"] = None
import pathlib
import effdet_keras as ek
from effdet_keras import cli

folder = pathlib.Path(sys.argv[1])
train, valid = ek.data.write_shapes(folder / "coco", num_train=4, num_valid=2,
                                    image_size=32)
tried = {
    "train": lambda: sys.exit(cli.main(["train", str(folder / "coco"), "--out",
                                        str(folder / "run"), "--find-rate"])),
    "fine_tune": lambda: ek.fine_tune(train, out=folder / "run"),
}
model = ek.EfficientDet.from_preset("efficientdet-lite0", image_size=64, dataset=train,
                                    fpn_cell_repeats=1, head_repeats=1, verbose=0)
model.compile()
before = model.settings
tried["fit"] = lambda: model.fit(train)
tried["validation"] = lambda: model.fit(None, validation_data=valid)
made = []
original = ek.EfficientDet.__init__
def noted(self, *arguments, **options):
    made.append(arguments)
    original(self, *arguments, **options)
ek.EfficientDet.__init__ = noted
for name, call in tried.items():
    try:
        call()
        print(name, "did not fail")
    except (ek.errors.MissingPackageError, SystemExit) as error:
        print(f"{name}: {error}")
print("made", len(made), "models,", sorted(p.name for p in folder.iterdir()))
print("compiled again", model.settings is not before)
"""


@pytest.mark.extra_packages
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_training_says_first_that_it_needs_tensorflow(tmp_path, backend):
    """Before a model is made, before one is compiled, and before a folder is made."""
    pytest.importorskip(backend)
    said = programs.run_alone("-c", TRAINING, tmp_path, KERAS_BACKEND=backend)
    cure = (
        "Training on a `DetectionDataset`, which `tf.data` reads on every backend of "
        'Keras, needs tensorflow: pip install "tensorflow"'
    )
    for name in ("fine_tune", "fit", "validation"):
        assert f"{name}: {cure}" in said
    assert "train: 2" in said or "train: 1" in said  # the status of the command
    assert "made 0 models, ['coco']" in said
    assert "compiled again False" in said
