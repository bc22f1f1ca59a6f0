"""`Predictor`: live models, archives and exported files detect alike."""

import functools

import keras
import numpy as np
import pytest
from PIL import Image
from support.tiny import lively_model

import effdet_keras as ek
from effdet_keras import cli
from effdet_keras import predictor as module
from effdet_keras._internal.optional_imports import OptionalModule
from effdet_keras.export.registry import FORMATS
from effdet_keras.export.runtime import ExportedDetector, describe
from effdet_keras.extras.fusion import detect_augmented
from effdet_keras.extras.tiles import detect_tiled
from effdet_keras.weights.archive import write_archive


class LiveRuntime:
    """The model itself as an exported file, which notes the batches it is given."""

    def __init__(self, model, batch_size=None, outputs="raw"):
        self.model, self.batches = model, []
        self.description = describe(model, batch_size=batch_size, outputs=outputs)

    def run(self, images):
        self.batches.append(len(images))
        if self.description.outputs == "raw":
            outputs = self.model(images, training=False)
        else:
            outputs = self.model.predict_on_batch(images)
        return {n: keras.ops.convert_to_numpy(v) for n, v in outputs.items()}


@pytest.fixture(scope="module")
def model():
    return lively_model(category_ids=(3, 5, 9))


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(3)
    return [rng.integers(0, 256, (48, 40 + 8 * i, 3), "uint8") for i in range(5)]


def assert_same(found, expected, tolerance=1e-5):
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert one.names == other.names
        np.testing.assert_allclose(one.scores, other.scores, atol=tolerance)
        np.testing.assert_allclose(one.boxes, other.boxes, atol=100 * tolerance)


@pytest.mark.smoke
def test_raw_outputs_of_a_file_become_what_the_model_detects(model, images):
    """The one test of this file that runs on every backend."""
    predictor = ek.Predictor(ExportedDetector(LiveRuntime(model)))
    assert predictor.class_names == ("cat", "dog", "bird")
    assert predictor.category_ids == (3, 5, 9)
    assert predictor.config == model.config
    expected = model.detect(images[:2])
    assert min(map(len, expected)) > 3
    assert_same(predictor.detect(images[:2]), expected)
    one = predictor.detect(images[0], score_threshold=0.5)
    assert isinstance(one, ek.Detections) and 0 < len(one) < len(expected[0])
    assert one.scores.min() >= 0.5


@pytest.mark.tensorflow
def test_a_live_model_detects_by_itself(model, images):
    predictor = ek.Predictor(model)
    assert_same(predictor.detect(images), model.detect(images), 0)
    found = predictor.detect(images[:2], augment=False, tiles=False)
    assert_same(found, model.detect(images[:2]))
    with pytest.raises(ValueError, match="`batch_size` must be a whole number"):
        model.detect(images[0], batch_size="a")


@pytest.mark.tensorflow
@pytest.mark.parametrize("outputs", ["raw", "detections"])
@pytest.mark.parametrize(
    "size, batches", [(None, [2, 2, 2]), (1, [1] * 5), (3, [3, 3])]
)
def test_a_file_gets_batches_of_its_own_size(model, images, outputs, size, batches):
    runtime = LiveRuntime(model, batch_size=size, outputs=outputs)
    predictor = ek.Predictor(ExportedDetector(runtime))
    found = predictor.detect(images, batch_size=2, verbose=0)
    assert runtime.batches == batches
    assert_same(found, model.detect(images, verbose=0), 1e-4)


@pytest.mark.tensorflow
def test_paths_and_folders_are_read(model, images, tmp_path):
    for number, image in enumerate(images[:2]):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    predictor = ek.Predictor(model)
    expected = model.detect(images[:2])
    assert_same(predictor.detect(tmp_path), expected)
    assert_same([predictor.detect(str(tmp_path / "0.png"))], expected[:1], 1e-4)
    found = predictor.detect(tmp_path / "0.png", tiles=32, augment=True)
    assert found.image == tmp_path / "0.png"


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("option", "values", "message"),
    [
        ("augment", ["flip"], r"must be None, True .*\(0.75, 1"),
        ("tiles", ["x", (1, 2, 3)], "must be a whole number"),
        ("batch_size", [0], "must be a whole number"),
        ("score_threshold", [2], "must be a number from 0 to 1"),
    ],
)
def test_options_that_cannot_be_are_told(model, images, option, values, message):
    for value in values:
        with pytest.raises(ValueError, match=f"{message}.*Received: "):
            ek.Predictor(model).detect(images[0], **{option: value})


@pytest.mark.tensorflow
def test_tiles_and_augmentation_are_those_functions(model, images, capsys):
    predictor = ek.Predictor(model)

    low = functools.partial(model.detect, score_threshold=0.05, verbose=0)
    high = functools.partial(model.detect, verbose=0)

    found = predictor.detect(images[4], tiles=40, tile_overlap=0.4)
    expected = detect_tiled(high, images[4], tile_size=40, overlap=0.4)
    assert_same([found], [expected], 1e-4)
    assert len(found) > len(high([images[4]])[0])

    pad = {"pad_rgb": model.config.padding_rgb}
    found = predictor.detect(images[4], 0.4, augment=(0.75, 1.0))
    expected = detect_augmented(low, images[4], scales=(0.75, 1.0), **pad)
    assert 0 < len(found) < len(expected)
    assert_same([found], [expected.filter(0.4)], 1e-4)

    whole = np.full((160, 64, 3), 90, "uint8")
    every = functools.partial(model.detect, score_threshold=0, verbose=0)
    found = predictor.detect(whole, 0, tiles=True)  # tiles of 64 x 64
    assert_same([found], [detect_tiled(every, whole, tile_size=(64, 64))], 1e-4)

    both = predictor.detect(images[:2], tiles=40, augment=True, verbose=0)
    assert len(both) == 2 and capsys.readouterr().out == ""
    predictor.detect(images[:2], tiles=40)
    assert "2/2" in capsys.readouterr().out


@pytest.mark.tensorflow
@pytest.mark.parametrize("options", [{}, {"tiles": 32}, {"augment": True}])
def test_classes_are_those_that_filter_keeps(model, images, options):
    predictor = ek.Predictor(model)
    for classes in (["dog"], [0, "bird"], []):
        found = predictor.detect(images, 0.2, classes=classes, verbose=0, **options)
        for one, whole in zip(
            found, predictor.detect(images, 0.2, verbose=0, **options)
        ):
            expected = whole.filter(classes=classes)
            assert classes == [] or len(expected)
            np.testing.assert_array_equal(one.labels, expected.labels)
            np.testing.assert_allclose(one.scores, expected.scores, atol=1e-5)
    expected = model.detect(images[0], 0.2).filter(classes=["dog"])
    assert len(model.detect(images[0], 0.2, classes=["dog"])) == len(expected)
    with pytest.raises(ValueError, match="'cow'"):
        predictor.detect(images, classes=["cow"], **options)


def test_archives_are_loaded(model, images, tmp_path):
    write_archive(model, tmp_path / "best.keras")
    expected = model.detect(images[:1])
    for path in (tmp_path / "best.keras", str(tmp_path)):
        assert_same(ek.Predictor.load(path).detect(images[:1]), expected, 1e-4)
    with pytest.raises(ValueError, match="need a `runtime`"):
        ek.Predictor.load(tmp_path, num_threads=2)


def test_what_is_no_model_is_told(tmp_path):
    (tmp_path / "notes.txt").write_text("cat")
    (tmp_path / "cats.keras").write_text("cat")
    for name, error in (
        ("nowhere.onnx", FileNotFoundError),
        ("nowhere.keras", FileNotFoundError),
        ("notes.txt", ValueError),
        ("cats.keras", ValueError),
    ):
        with pytest.raises(error, match=name.replace(".", r"\.")):
            ek.Predictor.load(tmp_path / name)


@pytest.mark.tensorflow
@pytest.mark.parametrize("size", [None, 1])
def test_a_file_is_evaluated_as_its_model(model, images, size, capsys):
    found = model.detect(images, verbose=0)
    dataset = ek.data.from_arrays(
        images,
        [d.boxes[:2] for d in found],
        [d.labels[:2] for d in found],
        model.class_names,
    )
    evaluation = ek.callbacks.COCOEvaluation(dataset, batch_size=2, verbose=False)
    expected = evaluation.evaluate(model)
    runtime = LiveRuntime(model, batch_size=size)
    predictor = ek.Predictor(ExportedDetector(runtime))
    numbers = predictor.evaluate(dataset, batch_size=2, verbose=False)
    assert numbers == pytest.approx(expected, abs=1e-3) and numbers["AP"] > 0.5
    assert set(runtime.batches) == {size or 2}
    assert capsys.readouterr().out == ""
    ek.Predictor(model).evaluate(dataset)
    assert "ARmax100" in capsys.readouterr().out

    other = ek.data.from_arrays(images[:1], [[]], [[]], ("car",))
    with pytest.raises(ValueError, match="mean different things"):
        predictor.evaluate(other)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "runtime", ["openvino", "onnx", pytest.param("litert", marks=pytest.mark.slow)]
)
def test_a_live_model_detects_in_another_runtime(model, images, runtime):
    expected = model.detect(images, verbose=0)
    predictor = ek.Predictor(model, runtime=runtime, num_threads=1)
    assert type(predictor.detector.runtime) is FORMATS[runtime].load_runtime()
    # The last batch is smaller, and two sizes are followed by a third.
    for batch_size in (2, 3, 5, 2):
        found = predictor.detect(images, batch_size=batch_size, verbose=0)
        assert_same(found, expected, 1e-4)
    assert predictor.class_names == model.class_names
    with pytest.raises(ValueError, match="for models in Keras.*runtime='onnx'"):
        ek.Predictor(predictor.detector, runtime="onnx")
    if runtime != "openvino":
        with pytest.raises(
            ValueError, match="only for OpenVINO files.*precision='bfloat16'"
        ):
            ek.Predictor(model, runtime=runtime, precision="bfloat16")


@pytest.mark.tensorflow
def test_openvino_computes_in_bfloat16_where_the_processor_does(model):
    openvino = pytest.importorskip("openvino")
    able = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if "BF16" not in able:
        with pytest.raises(ValueError, match="precision='bfloat16', able=.*FP32"):
            ek.Predictor(model, runtime="openvino", precision="bfloat16")
        return
    half = ek.Predictor(model, runtime="openvino", precision="bfloat16")
    inputs = np.random.default_rng(0).uniform(0, 255, (1, 64, 64, 3)).astype("float32")
    outputs = half.detector.runtime.run(inputs)
    live = {n: keras.ops.convert_to_numpy(v) for n, v in model(inputs).items()}
    gaps = [np.abs(outputs[n] - v).max() / np.abs(v).max() for n, v in live.items()]
    assert 1e-5 < max(gaps) < 0.1


@pytest.mark.tensorflow
def test_an_archive_is_put_into_a_runtime(model, monkeypatch, tmp_path):
    asked = []

    def in_runtime(model, *options):
        asked.append(options)
        return ExportedDetector(LiveRuntime(model))

    monkeypatch.setattr(module, "in_runtime", in_runtime)
    write_archive(model, tmp_path / "best.keras")
    predictor = ek.Predictor.load(tmp_path, num_threads=1, runtime="openvino")
    assert predictor.class_names == model.class_names
    command = ["predict", str(tmp_path), "nowhere.png", "--threads", "1"]
    command += ["--runtime", "openvino", "--precision", "bfloat16"]
    assert cli.main(command) == 1  # there is no such image
    assert asked == [("openvino", 1, "float32"), ("openvino", 1, "bfloat16")]


@pytest.mark.tensorflow
def test_the_fastest_runtime_is_the_first_that_computes_what_the_model_does(
    model, images, monkeypatch
):
    detector = ek.Predictor(model, runtime="auto", num_threads=1).detector
    assert type(detector.runtime) is FORMATS["openvino"].load_runtime()
    assert ek.Predictor(detector, runtime="auto").detector is detector

    class Wrong(FORMATS["onnx"].load_runtime()):
        def run(self, images):
            return {n: x + 0.01 * abs(x) for n, x in super().run(images).items()}

    def found(self):
        return self is not FORMATS["openvino"].load_runtime().package

    monkeypatch.setattr(OptionalModule, "is_installed", found)
    detector = ek.Predictor(model, runtime="auto").detector
    assert type(detector.runtime) is FORMATS["onnx"].load_runtime()
    monkeypatch.setattr(module, "open_runtime", lambda path, *options: Wrong(path))
    with pytest.warns(UserWarning, match="Keras is used, not ONNX.*differ"):
        assert ek.Predictor(model, runtime="auto").detector is model
    with pytest.raises(ValueError, match="does not compute the same as the model"):
        ek.Predictor(model, runtime="onnx")


def test_options_of_a_runtime_need_one(model):
    with pytest.raises(ValueError, match="need a `runtime`.*num_threads=2"):
        ek.Predictor(model, num_threads=2)
    with pytest.raises(ValueError, match="'onnx'.*Received: runtime='tensorrt'"):
        ek.Predictor(model, runtime="tensorrt")
