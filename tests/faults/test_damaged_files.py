"""Files with a bit flipped, cut short or grown: refused by name, or read as written."""

import collections
import itertools
import os
import warnings

import numpy as np
import pytest
from keras import ops
from PIL import Image
from support import torch_files
from support.kinds import slow_but
from support.tiny import LITE0, lively_model

import effdet_keras as ek
from effdet_keras.errors import EffDetError
from effdet_keras.images import read_image

pytestmark = pytest.mark.tensorflow


def flipped(content, rng):
    """One bit, anywhere."""
    content = bytearray(content)
    content[rng.integers(len(content))] ^= 1 << rng.integers(8)
    return bytes(content)


def cut(content, rng):
    return content[: rng.integers(len(content))]


def extended(content, rng):
    return content + rng.bytes(rng.integers(1, 2000))


NAME = f"{os.sep}cats"  # what an error must have
DAMAGES = (flipped, cut, extended)


def outcomes(files, read, expected, tries):
    """Damages each file in turn, and counts what reading gives.

    Args:
        files: paths.
        read: function that reads them; raises, or returns dict of arrays.
        expected: what it returns of whole files.
        tries: int, for each file and damage.

    Returns:
        `collections.Counter` of "refused", "as written" and "other numbers".
    """
    rng = np.random.default_rng(0)
    counts = collections.Counter()
    for path, damage in itertools.product(files, DAMAGES):
        whole = path.read_bytes()
        for _ in range(tries):
            path.write_bytes(damage(whole, rng))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = read()
            except (EffDetError, OSError) as error:
                assert NAME in str(error), error
                counts["refused"] += 1
            else:
                counts["as written" if same(found, expected) else "other numbers"] += 1
        path.write_bytes(whole)
    assert same(read(), expected)
    return counts


def same(found, expected):
    return found.keys() == expected.keys() and all(
        np.array_equal(found[name], expected[name], equal_nan=True) for name in found
    )


@pytest.fixture(scope="module")
def model():
    return lively_model((64, 64), backbone=LITE0)


@pytest.fixture(scope="module")
def target():
    return lively_model((64, 64), backbone=LITE0)


def weights_of(model):
    return {v.path: np.asarray(v) for v in model.weights}


# Weights.

# A format without a checksum reads other numbers where a bit of a weight has flipped.
WITHOUT_CHECKSUM = ("safetensors", "pth before zip")


@pytest.fixture
def written(request, model, tmp_path):
    """The files of weights of one kind, the one that users name first."""
    kind, path = request.param, tmp_path / "cats"
    if kind == "keras":
        model.save(path.with_suffix(".keras"))
    elif kind == "weights.h5":
        model.save_weights(tmp_path / "cats.weights.h5")
    elif kind == "automl":
        model.export_checkpoint(path, "automl-tf1")
        (tmp_path / "checkpoint").unlink()
        return [tmp_path / "cats.index", tmp_path / "cats.data-00000-of-00001"]
    else:
        from safetensors.numpy import load_file

        model.export_checkpoint(tmp_path / "cats.safetensors", "torch-effdet")
        if kind != "safetensors":
            arrays = load_file(tmp_path / "cats.safetensors")
            (tmp_path / "cats.safetensors").unlink()
            is_zip = kind == "pth"
            write = torch_files.write_zip if is_zip else torch_files.write_before_zip
            write(tmp_path / "cats.pth", arrays)
    return list(tmp_path.iterdir())


SHORT = ("weights.h5", "pth")
KINDS = ("keras", "weights.h5", "automl", "pth", *WITHOUT_CHECKSUM)


@pytest.mark.parametrize("written", slow_but(SHORT, KINDS), indirect=True, ids=str)
def test_damaged_weights(written, target, times, request):
    kind = request.node.callspec.params["written"]

    def read():
        for variable in target.weights:
            variable.assign(ops.zeros_like(variable))
        path = written[0]
        target.load_pretrained(
            path.with_suffix("") if kind == "automl" else path, verbose=0
        )
        return weights_of(target)

    counts = outcomes(written, read, read(), times(1, 400))
    print(f"weights, {kind}: {dict(counts)}")
    assert kind in WITHOUT_CHECKSUM or "other numbers" not in counts
    assert counts["refused"] > 0


# Exports.


@pytest.mark.parametrize("name", ["cats.tflite", "cats.onnx", "cats.xml", "cats"])
@pytest.mark.slow  # a few of each are among the tests of every format
def test_damaged_exports(name, model, tmp_path):
    path = tmp_path / name
    model.export(path, verbose=0)
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
    elif path.suffix == ".xml":
        files += [path.with_suffix(".bin")]
    image = np.random.default_rng(3).integers(0, 256, (64, 64, 3), "uint8")

    def read():
        found = ek.Predictor.load(path).detect(image, 0.2, verbose=0)
        return {"boxes": found.boxes, "scores": found.scores, "labels": found.labels}

    tries = 100 if path.is_dir() else 1000  # a SavedModel takes seconds to load
    counts = outcomes(files, read, read(), tries // len(files))
    print(f"exports, {name}: {dict(counts)}")
    assert "other numbers" not in counts


# Images.


@pytest.mark.parametrize("ending", [".jpg", ".png", ".webp", ".bmp", ".gif", ".tif"])
def test_damaged_images(ending, times, tmp_path):
    path = tmp_path / f"cats{ending}"
    noise = np.random.default_rng(0).integers(0, 256, (40, 60, 3), "uint8")
    Image.fromarray(noise).save(path)

    def read():
        pixels = read_image(path)
        assert pixels.dtype == np.uint8 and pixels.shape[2:] == (3,)
        return {"pixels": pixels}

    counts = outcomes([path], read, read(), times(20, 10_000))
    print(f"images, {ending}: {dict(counts)}")
    assert counts["refused"] > 0
