"""Every format, loaded as a file, finds what the live model finds, in every image."""

import concurrent.futures
import functools
import itertools
import json
import random
import shutil
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
from PIL import Image
from support import programs
from support.kinds import slow_but
from support.tiny import LITE0, lively_model, spread_outputs, tiny_model

import effdet_keras as ek
from effdet_keras.images import EXIF_ORIENTATION
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network.config import TIMM_BACKBONE

_OWN = {**TIMM_BACKBONE, "fpn_padding": "symmetric", "redundant_bias": False}
NETWORKS = {
    "qufpn": {**_OWN, "fpn_name": "qufpn", "fpn_weight_method": "fastattn"},
    "bilinear": {
        **_OWN,
        "fpn_downsampling": "bilinear",
        "fpn_upsampling": "bilinear",
        "max_level": 7,  # maps of 8 x 12 to 1 x 1: odd sides too
    },
}
IMAGE_SIZE = (64, 96)  # not square


def other_model(name):
    """One of `NETWORKS` that finds things, on images of 64 x 96."""
    keras.utils.set_random_seed(3)
    small = tiny_model()
    config = small.config.replace(image_size=IMAGE_SIZE, **NETWORKS[name])
    model = EfficientDet(config, class_names=small.class_names)
    rng = np.random.default_rng(5)
    for weight in model.weights:
        if weight.path.endswith("moving_variance"):
            weight.assign(rng.uniform(0.5, 1.5, weight.shape))
        elif weight.path.endswith("moving_mean"):
            weight.assign(rng.normal(0.0, 0.1, weight.shape))
    spread_outputs(model, noise(2), "class-predict", "class_logits", 1.7)
    spread_outputs(model, noise(2), "box-predict", "box_deltas", 0.3)
    return model


def noise(count):
    """Images of random pixels, uint8."""
    rng = np.random.default_rng(1)
    return rng.integers(0, 256, (count, *IMAGE_SIZE, 3), "uint8")


pytestmark = pytest.mark.tensorflow

# name -> path, package that runs it, options of `export`
FORMATS = {
    "saved_model": ("pets", "tensorflow", {}),
    "litert": ("pets.tflite", "ai_edge_litert", {}),
    "litert-raw-3": (
        "pets.tflite",
        "ai_edge_litert",
        {"outputs": "raw", "batch_size": 3},
    ),
    "onnx": ("pets.onnx", "onnxruntime", {}),
    "onnx-raw-3": ("pets.onnx", "onnxruntime", {"outputs": "raw", "batch_size": 3}),
    "openvino": ("pets.xml", "openvino", {}),
}


@pytest.fixture(scope="module")
def model():
    """A lively model without ties: no score is so high that it rounds to 1."""
    random.seed(0)  # of Keras' initializers
    model = lively_model(IMAGE_SIZE, backbone=LITE0)
    images = np.random.default_rng(0).uniform(0, 255, (2, *IMAGE_SIZE, 3))
    spread_outputs(model, images, "class-predict", "class_logits", 1.7)
    spread_outputs(model, images, "box-predict", "box_deltas", 0.3)
    model.score_settings = ek.metrics.ScoreSettings((0.1 + 0.2, 0.5, 0.6), 1.5)
    return model


@pytest.fixture(scope="module")
def export(model, tmp_path_factory):
    """A function of a name in `FORMATS`: the path of that export, made once."""
    made = {}

    def run(name):
        file, package, options = FORMATS[name]
        pytest.importorskip(package)
        if name not in made:
            path = tmp_path_factory.mktemp(name) / file
            rng = np.random.default_rng(1)
            images = rng.integers(0, 256, (2, 64, 96, 3), "uint8")
            model.export(path, images=images, verbose=0, **options)
            made[name] = path
        return made[name]

    return run


# What differs in them from the others is tested where each format is.
@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.slow] if "raw" in name else [])
        for name in FORMATS
    ]
)
def exported(request, export):
    """The path of one export."""
    return export(request.param)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """One of each kind: files and arrays."""
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(4)
    noise = rng.integers(0, 256, (50, 70, 3), "uint8")
    deep = rng.integers(0, 65536, (40, 30)).astype("uint16")
    Image.fromarray(deep).save(folder / "deep.png")
    turned = Image.Exif()
    turned[EXIF_ORIENTATION] = 6
    Image.fromarray(noise).save(folder / "turned.jpg", exif=turned, quality=95)
    return {
        "rgb": noise,
        "empty": np.full((64, 64, 3), 124, "uint8"),
        "one pixel": noise[:1, :1],
        "grey": noise[..., 0],
        "rgba": np.concatenate([noise, noise[..., :1]], axis=-1),
        "16 bit": folder / "deep.png",
        "turned": folder / "turned.jpg",
    }


@pytest.fixture(scope="module")
def live(model, images):
    """A function of a `Postprocess` that gives what the live model finds with it."""
    known = {}

    def detect(postprocess):
        if postprocess not in known:
            other = lively_model(IMAGE_SIZE, backbone=LITE0, postprocess=postprocess)
            other.set_weights(model.get_weights())
            found = other.detect(list(images.values()), 0.2, verbose=0)
            known[postprocess] = dict(zip(images, found))
        return known[postprocess]

    return detect


def assert_same(found, expected):
    """One to one, but for those whose score is at the threshold."""
    for some, others in ((found, expected), (expected, found)):
        for one in some.filter(0.21):
            gaps = np.abs(others.boxes - one.boxes).max(axis=1)
            scores = np.abs(others.scores - one.scores)
            is_same = (others.labels == one.labels) & (gaps < 0.05) & (scores < 2e-3)
            assert is_same.any(), one


def test_it_finds_what_the_model_finds(exported, images, live):
    predictor = ek.Predictor.load(exported)
    expected = live(predictor.detector.postprocess)
    assert len(expected["rgb"]) > 5
    batch = predictor.detect(list(images.values()), 0.2, verbose=0)
    for name, found in zip(images, batch):
        assert_same(found, expected[name])
        alone = predictor.detect(images[name], 0.2)
        assert_same(alone, found)
    assert batch[-1].load_image().shape == (70, 50, 3)
    three = predictor.detect(list(images.values())[:3], 0.2, batch_size=3)
    for name, found in zip(images, three):
        assert_same(found, expected[name])


USUAL = [("qufpn", "litert"), ("qufpn", "onnx")]
WHOLE = [name for name in FORMATS if "raw" not in name]


@functools.cache
def model_of(network):
    return other_model(network)


@pytest.mark.parametrize(
    "case", slow_but(USUAL, [(n, name) for n in NETWORKS for name in WHOLE]), ids=str
)
def test_what_effdets_own_models_have_is_in_every_format(tmp_path, case):
    network, name = case
    file, package, _ = FORMATS[name]
    pytest.importorskip(package)
    model, images = model_of(network), noise(3)
    model.export(tmp_path / file, images=images, verbose=0)
    predictor = ek.Predictor.load(tmp_path / file)
    assert predictor.config == model.config
    # LiteRT has settings of its own: docs/export_litert.md.
    live = ek.EfficientDet(
        model.config,
        class_names=model.class_names,
        postprocess=predictor.detector.postprocess,
    )
    live.set_weights(model.get_weights())
    for image in images:
        expected = live.detect(image, 0.2)
        assert len(expected) > 5
        assert_same(predictor.detect(image, 0.2), expected)


def found_in_threads(predictor, images, *, threads, calls):
    """What each of several threads finds, and what one finds alone."""
    alone = [predictor.detect(image, 0.2, verbose=0) for image in images]

    def look(thread):
        rows = np.random.default_rng(thread).integers(len(images), size=calls)
        return [(row, predictor.detect(images[row], 0.2, verbose=0)) for row in rows]

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        pairs = itertools.chain.from_iterable(pool.map(look, range(threads)))
        return [(found, alone[row]) for row, found in pairs]


def many_images():
    rng = np.random.default_rng(11)
    return [rng.integers(0, 256, (40, 60, 3), "uint8") for _ in range(6)]


def assert_nobody_got_anothers(pairs):
    for found, expected in pairs:
        np.testing.assert_allclose(found.boxes, expected.boxes, atol=1e-3)
        np.testing.assert_array_equal(found.labels, expected.labels)


@pytest.mark.parametrize("calls", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_threads_get_the_detections_of_their_own_images(exported, calls):
    predictor = ek.Predictor.load(exported)
    pairs = found_in_threads(predictor, many_images(), threads=6, calls=calls)
    assert len(pairs) == 6 * calls
    assert_nobody_got_anothers(pairs)


def test_threads_with_batches_of_several_sizes_may_have_a_predictor_each(exported):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        predictors = [ek.Predictor.load(exported, num_threads=n) for n in (None, 1, 3)]
    told = [str(one.message) for one in told if "num_threads" in str(one.message)]
    # TensorFlow's threads are those of the process, which has computed before.
    assert len(told) == 2 * exported.is_dir()
    images = many_images()
    alone = predictors[0].detect(images, 0.2, verbose=0)

    def look(thread):
        rng, predictor = np.random.default_rng(thread), predictors[thread % 3]
        pairs = []
        for count in rng.integers(1, 5, 6):
            rows = rng.integers(len(images), size=count)
            batch = [images[row] for row in rows]
            found = predictor.detect(batch, 0.2, batch_size=int(count), verbose=0)
            pairs += zip(found, [alone[row] for row in rows])
        return pairs

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for pairs in pool.map(look, range(6)):
            assert len(pairs) >= 6
            assert_nobody_got_anothers(pairs)


def test_it_knows_its_classes_and_finds_nothing_above_one(exported, model, images):
    predictor = ek.Predictor.load(exported, num_threads=None)
    assert predictor.class_names == model.class_names
    assert predictor.config == model.config
    assert predictor.score_settings == model.score_settings
    assert predictor.score_settings is not None
    nothing = predictor.detect(images["rgb"], score_threshold=1.0)
    assert len(nothing) == 0 and nothing.boxes.shape == (0, 4)


def files_of(path):
    """The files that hold the network of an export."""
    if path.is_dir():
        return [path / "saved_model.pb"]
    return [file for file in (path, path.with_suffix(".bin")) if file.exists()]


def test_what_is_damaged_is_told(exported, tmp_path):
    copy = shutil.copytree(exported.parent, tmp_path / "copy") / exported.name
    rng = np.random.default_rng(1)
    for file in files_of(copy):
        content = file.read_bytes()
        flipped = bytearray(content)
        flipped[rng.integers(len(content))] ^= 1
        for one in (b"", content[: len(content) // 2], bytes(flipped)):
            file.write_bytes(one)
            with pytest.raises(ValueError, match=copy.name) as error:
                ek.Predictor.load(copy)
            told = str(error.value).lower()
            assert "export" in told or "damaged" in told
        file.write_bytes(content)
    ek.Predictor.load(copy)


# Blocks all that a Raspberry Pi may not have: whatever effdet_keras requires but NumPy
# and Pillow.
ALONE = """
import sys
for name in ("keras", "tensorflow", "jax", "torch", "h5py", "yaml", "pycocotools",
             "google", "google_crc32c", "tensorflow_hub", "pkg_resources"):
    sys.modules[name] = None
import json
import effdet_keras as ek
from effdet_keras.cli import main
folder, *paths = sys.argv[1:]
for path in paths:
    found = ek.Predictor.load(path).detect(f"{folder}/image.png", 0.2)
    print(json.dumps([x.tolist() for x in (found.boxes, found.scores, found.labels)]))
    ek.Predictor.load(path).detect([found.image] * 4, augment=(0.5, 1.0), tiles=40)
sys.exit(main(["predict", *paths[:1], f"{folder}/image.png", "--json",
               f"{folder}/found.json", "--out", f"{folder}/drawn"]))
"""


def test_it_detects_without_keras_and_tensorflow(export, images, live, tmp_path):
    Image.fromarray(images["rgb"]).save(tmp_path / "image.png")
    paths = [export(name) for name in ("litert", "litert-raw-3", "onnx", "openvino")]
    said = programs.run_alone("-c", ALONE, tmp_path, *paths)
    lines = [line for line in said.splitlines() if line.startswith("[")]
    for path, line in zip(paths, lines, strict=True):
        found = ek.Detections(*map(np.array, json.loads(line)))
        postprocess = ek.Predictor.load(path).detector.postprocess
        assert_same(found, live(postprocess)["rgb"])
    annotations = json.loads((tmp_path / "found.json").read_text())["annotations"]
    assert annotations and (tmp_path / "drawn" / "image.png").is_file()


WITHOUT_KERAS = """
import sys
sys.modules["keras"] = None
import effdet_keras as ek
for use in (
    lambda: ek.EfficientDet,
    lambda: ek.Predictor.load("run/best.keras"),
    lambda: ek.Predictor.load(sys.argv[1]).evaluate([]),
):
    try:
        use()
    except ek.errors.MissingPackageError as error:
        print(error)
"""


def test_what_needs_keras_says_so(export):
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_KERAS, str(export("litert"))],
        capture_output=True,
        text=True,
    )
    lines = result.stdout.splitlines()
    cure = 'pip install "keras" "tensorflow"'
    assert [line.endswith(cure) for line in lines] == [True] * 3
    assert "`EfficientDet` of effdet_keras needs keras" in lines[0]
    assert "Opening 'run/best.keras' needs keras" in lines[1]
    assert "Evaluating needs keras" in lines[2]
