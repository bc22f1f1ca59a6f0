import dataclasses
import hashlib
import warnings
import zipfile
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from support import programs
from support.tiny import LITE0, spread, tiny_model

from effdet_keras.data import from_arrays
from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.export.check import check_export
from effdet_keras.export.litert import LiteRTRuntime, hard_postprocess, write_litert
from effdet_keras.export.network import calibration_inputs
from effdet_keras.export.runtime import open_runtime
from effdet_keras.model.efficientdet import EfficientDet

pytestmark = pytest.mark.tensorflow
Interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter

DETECTIONS = {"outputs": "detections", "score_threshold": 0.5}
FILES = [
    {"precision": "float32", **DETECTIONS},
    {"precision": "float32", "outputs": "raw"},
    pytest.param({"precision": "float16", "outputs": "raw"}, marks=pytest.mark.slow),
    pytest.param({"precision": "dynamic", "outputs": "raw"}, marks=pytest.mark.slow),
    {"precision": "int8", **DETECTIONS},
    pytest.param({"precision": "int8", "outputs": "raw"}, marks=pytest.mark.slow),
]


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return spread(tiny_model())


@pytest.fixture(scope="module")
def images():
    # Neither black nor white: the scale of the input must not come from them.
    rng = np.random.default_rng(0)
    return [rng.integers(40, 200, (64, 64, 3)).astype("uint8") for _ in range(2)]


@pytest.fixture(scope="module")
def written(model, images, tmp_path_factory):
    """Writes with options, and gives the path; the same options write once."""
    folder = tmp_path_factory.mktemp("litert")
    paths = {}

    def write(**options):
        key = tuple(sorted(options.items()))
        if key not in paths:
            paths[key] = folder / f"{len(paths)}.tflite"
            calibrated = options.get("precision") == "int8"
            given = {"calibration": images} if calibrated else {}
            write_litert(model, paths[key], **given, **options)
        return paths[key]

    return write


def operations(path):
    interpreter = Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    return [detail["op_name"] for detail in interpreter._get_ops_details()]


def kind(options):
    return f"{options['precision']}-{options['outputs']}"


@pytest.mark.parametrize("options", FILES, ids=kind)
def test_a_file_computes_what_the_model_does(written, model, images, options):
    runtime = open_runtime(written(**options), num_threads=2)
    report = check_export(model, runtime, images, format="litert")
    assert (report.precision, report.outputs) == (
        options["precision"],
        runtime.description.outputs,
    )
    assert report.live_detections > 20
    least = {"float32": 1, "float16": 0.98}.get(report.precision, 0.7)
    assert report.matched >= least * report.live_detections


@pytest.mark.parametrize("options", FILES, ids=kind)
def test_the_network_is_one_piece_for_xnnpack(written, options):
    names = operations(written(**options))
    assert {"TILE", "PACK", "SHAPE", "GATHER", "TRANSPOSE"}.isdisjoint(names)
    if options["precision"] != "dynamic":  # its depthwise convolutions stay outside
        assert names.count("DELEGATE") == 1
    detects = names.count("TFLite_Detection_PostProcess")
    assert detects == (options["outputs"] == "detections")


def test_a_batch_of_a_size_whose_levels_are_odd(tmp_path):
    # levels of 9x13, 5x7 and 3x4: every second row is repeated once and cut
    config = dataclasses.replace(tiny_model().config, image_size=(72, 104))
    model = spread(EfficientDet(config))
    write_litert(model, tmp_path / "odd.tflite", outputs="raw", batch_size=3)
    names = operations(tmp_path / "odd.tflite")
    assert names.count("DELEGATE") == 1 and "GATHER" not in names
    batch = np.random.default_rng(0).uniform(0, 255, (3, 72, 104, 3)).astype("float32")
    found = open_runtime(tmp_path / "odd.tflite").run(batch)
    for name, value in model(batch).items():
        value = keras.ops.convert_to_numpy(value)
        np.testing.assert_allclose(found[name], value, atol=1e-4)


@pytest.mark.parametrize("options", FILES[-2:], ids=kind)
def test_int8_takes_pixels_as_they_are(written, options):
    interpreter = Interpreter(model_path=str(written(**options)))
    (source,) = interpreter.get_input_details()
    assert source["dtype"] == np.uint8
    assert source["quantization"] == (1.0, 0)


@pytest.mark.parametrize(
    ("input_dtype", "quantization"), [("int8", (1.0, -128)), ("float32", (0.0, 0))]
)
def test_int8_with_another_input_finds_the_same(
    written, model, images, input_dtype, quantization
):
    int8 = {"precision": "int8", **DETECTIONS}
    path = written(**int8, input_dtype=input_dtype)
    (source,) = Interpreter(model_path=str(path)).get_input_details()
    assert (np.dtype(source["dtype"]).name, source["quantization"]) == (
        input_dtype,
        quantization,
    )
    usual, runtime = open_runtime(written(**int8)), open_runtime(path)
    assert runtime.input_dtype == input_dtype
    for image in images:
        expected, found = usual.run(image[None]), runtime.run(image[None])
        assert expected["num_detections"] > 0
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, atol=1e-6, err_msg=name)


def test_a_float_file_takes_bytes(written, images):
    raw = {"precision": "float32", "outputs": "raw"}
    runtime = open_runtime(written(**raw, input_dtype="uint8"))
    assert runtime.input_dtype == "uint8"
    batch = images[0][None]
    expected = open_runtime(written(**raw)).run(batch)
    for found in (runtime.run(batch), runtime.run(batch + np.float32(0.4))):
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)


def test_outputs_are_those_of_the_task_libraries_and_come_back_as_ours(written, images):
    interpreter = Interpreter(model_path=str(written(**FILES[0])))
    shapes = [tuple(output["shape"]) for output in interpreter.get_output_details()]
    assert shapes == [(1, 100, 4), (1, 100), (1, 100), (1,)]
    signatures = interpreter.get_signature_list()["serving_default"]
    assert signatures["inputs"] == ["images"]
    assert sorted(signatures["outputs"]) == ["boxes", "classes", "count", "scores"]
    runtime = open_runtime(written(**FILES[0]))
    for image in images:
        found = {k: v[0] for k, v in runtime.run(image[None]).items()}
        count = found["num_detections"]
        assert 0 < count < 100
        assert (found["labels"][:count] >= 0).all()
        # The operation leaves these rows unwritten.
        assert (found["labels"][count:] == -1).all()
        assert not found["scores"][count:].any() and not found["boxes"][count:].any()
        assert found["labels"].dtype == np.int32
    assert runtime.run(images[0][None])["boxes"].max() == 64
    assert without_clip(runtime).run(images[0][None])["boxes"].max() > 64


def test_suppression_per_class_loses_no_class(written, model, images):
    options = {"per_class": True, "iou_threshold": 0.3, "max_detections": 60}
    path = written(**options, score_threshold=0.02)
    runtime = open_runtime(path, num_threads=2)  # in which the third class was lost
    report = check_export(model, runtime, images, format="litert")
    assert report.matched == report.live_detections > 20


@pytest.mark.parametrize(
    ("ops", "per_class", "threads"),
    [("custom", True, 1), ("custom", False, 4), ("builtin", True, 4)],
)
def test_only_what_the_operation_loses_is_left_to_one_thread(
    written, monkeypatch, ops, per_class, threads
):
    given = {} if ops == "builtin" else {"per_class": per_class}
    path = written(postprocess_ops=ops, score_threshold=0.02, **given)
    seen = []

    def spy(**options):
        seen.append(options["num_threads"])
        return Interpreter(**options)

    monkeypatch.setattr("ai_edge_litert.interpreter.Interpreter", spy)
    assert open_runtime(path, num_threads=4).description.postprocess.per_class == (
        per_class
    )
    assert seen == [threads]


def test_a_lowest_score_of_the_model_below_0_is_0_in_the_file():
    for own, expected in ((-np.inf, 0.0), (None, 0.01), (0.3, 0.3)):
        postprocess = Postprocess(method="hard", score_threshold=own)
        assert hard_postprocess(postprocess).score_threshold == expected


def without_clip(runtime):
    postprocess = dataclasses.replace(runtime.description.postprocess, clip=False)
    runtime.description = dataclasses.replace(
        runtime.description, postprocess=postprocess
    )
    return runtime


def test_the_zip_behind_the_network_holds_names_description_and_checksum(written):
    content = written(**FILES[0]).read_bytes()
    with zipfile.ZipFile(written(**FILES[0])) as archive:
        assert archive.read("labelmap.txt") == b"cat\ndog\nbird\n"
        digest = archive.read("effdet_keras.sha256").decode()
        start = min(entry.header_offset for entry in archive.infolist())
    assert hashlib.sha256(content[:start]).hexdigest() == digest
    names = open_runtime(written(**FILES[0])).description.class_names
    assert names == ("cat", "dog", "bird")


@pytest.mark.extra_packages
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_mediapipe_opens_a_file_and_finds_the_same(images, tmp_path, precision):
    mediapipe = pytest.importorskip("mediapipe")
    from mediapipe.tasks import python as tasks

    keras.utils.set_random_seed(0)
    model = spread(tiny_model(backbone=LITE0), 0.7, 0.7)
    for weight in model.weights:  # MediaPipe cuts boxes that leave the image
        if "box-predict" in weight.path:
            weight.assign(0.1 * weight)
        if "box-predict/bias" in weight.path:
            weight.assign(np.tile([0, 0, -1.5, -1.5], 9))
    path = tmp_path / "pets.tflite"
    calibration = images if precision == "int8" else None
    options = {"precision": precision, "calibration": calibration, **DETECTIONS}
    write_litert(model, path, **options)
    expected = without_clip(open_runtime(path)).run(images[0][None])

    options = tasks.vision.ObjectDetectorOptions(
        base_options=tasks.BaseOptions(model_asset_path=str(path)), max_results=100
    )
    with tasks.vision.ObjectDetector.create_from_options(options) as detector:
        image = mediapipe.Image(mediapipe.ImageFormat.SRGB, images[0])
        found = {
            (d.categories[0].category_name, round(d.categories[0].score, 3)): d
            for d in detector.detect(image).detections
        }
    inside = 0
    for row in range(int(expected["num_detections"][0])):
        y_min, x_min, y_max, x_max = expected["boxes"][0, row]
        if min(y_min, x_min) < 0 or max(y_max, x_max) > 64:
            continue
        inside += 1
        name = ("cat", "dog", "bird")[expected["labels"][0, row]]
        box = found[name, round(float(expected["scores"][0, row]), 3)].bounding_box
        found_box = (box.origin_y, box.origin_x, box.height, box.width)  # whole pixels
        wanted_box = (y_min, x_min, y_max - y_min, x_max - x_min)
        np.testing.assert_allclose(found_box, wanted_box, atol=1.01)
    assert inside > 5


def test_a_file_runs_without_this_package_and_without_tensorflow(written):
    code = f"""
import sys, zipfile, numpy as np
from ai_edge_litert.interpreter import Interpreter
path = {str(written(**FILES[4]))!r}
detect = Interpreter(model_path=path).get_signature_runner()
found = detect(images=np.zeros((1, 64, 64, 3), "uint8"))
names = zipfile.ZipFile(path).read("labelmap.txt").decode().split()
print(*names, int(found["count"][0]) in range(101), found["boxes"].shape)
assert not set(sys.modules) & {{"tensorflow", "keras", "effdet_keras"}}
"""
    assert programs.run_alone("-c", code) == "cat dog bird True (1, 100, 4)\n"


INT8 = {"precision": "int8", "calibration": ["x"]}


@pytest.mark.parametrize(
    "options, message",
    [
        ({"precision": "int8"}, "int8 export needs images of the kind"),
        (
            {"input_dtype": "int8"},
            "give `precision='int8'` too, or `input_dtype='uint8'`.*'float32'",
        ),
        ({"calibration": ["x.jpg"]}, "`calibration` is used only for int8"),
        ({**INT8, "postprocess_ops": "builtin"}, "int8 would round the boxes"),
        ({"batch_size": 2}, "one image at a time"),
        ({"max_detections": 5, "outputs": "raw"}, "Raw outputs have no postprocess"),
        (
            {"max_detections": 0},
            "`max_detections` must be a whole number of at least 1",
        ),
        ({**INT8, "calibration": []}, "at least one image"),
        ({"max_classes_per_detection": 4}, "at most the model's number of classes, 3"),
        (
            {"max_classes_per_detection": 2, "per_class": True},
            "gives each box one class",
        ),
        ({"max_classes_per_detection": 0}, "must be a whole number of at least 1"),
        ({"max_classes_per_detection": 2, "outputs": "raw"}, "which only files"),
        ({"max_classes_per_detection": 2, "postprocess_ops": "builtin"}, "only files"),
        ({"detections_per_class": 2}, "give `per_class=True` too"),
        ({"calibration_images": 5}, "number of images to use from `calibration`"),
        (
            {"outputs": "raw", "postprocess_ops": "builtin"},
            "raw outputs have no postprocess",
        ),
        ({"int8_scores": True}, "`int8_scores` works only with .*'float32'"),
        (
            {**INT8, "outputs": "raw", "int8_scores": True},
            "`int8_scores` works only with",
        ),
    ],
)
def test_wrong_options_are_told_before_any_work(tmp_path, model, options, message):
    with pytest.raises(ValueError, match=message):
        model.export(tmp_path / "x.tflite", **options)
    assert not list(tmp_path.iterdir())


def test_calibration_takes_images_evenly_from_datasets_and_lists(images):
    config = tiny_model().config
    images = [np.full((4, 4, 3), value, "uint8") for value in range(9)]
    dataset = from_arrays(images, [[]] * 9, [[]] * 9, ("cat",))
    for calibration in (images, dataset):
        chosen = calibration_inputs(config, calibration, 3)
        assert [int(read()[0, 0, 0]) for read in chosen] == [0, 4, 8]
    assert len(calibration_inputs(config, images, 100)) == 9


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "hard NMS, across classes, one class for each box, scores above 0.02"),
        ({"per_class": True}, "hard NMS, scores above 0.02"),
        (
            {"max_classes_per_detection": 2},
            "hard NMS, across classes, 2 classes for each box, scores above 0.02",
        ),
    ],
)
def test_the_report_says_how_the_file_chooses_boxes(
    model, images, tmp_path, options, words
):
    report = model.export(
        tmp_path / "a.tflite", images=images, verbose=0, score_threshold=0.02, **options
    )
    assert report.suppression == words
    assert (
        f"in another way than the model ({words}): pass a dataset as `evaluate`"
        in str(report)
    )
    raw = tmp_path / "raw.tflite"
    assert not model.export(raw, images=images, verbose=0, outputs="raw").suppression


MORE_CLASSES = {"max_detections": 7, "score_threshold": 0.2}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_box_has_a_row_for_each_of_its_best_classes(model, images, tmp_path, count):
    path = tmp_path / "pets.tflite"
    options = {**MORE_CLASSES, "max_classes_per_detection": count}
    report = model.export(path, images=images, verbose=0, **options)
    assert report.matched == report.live_detections > 7
    interpreter = Interpreter(model_path=str(path))
    found = interpreter.get_signature_runner()(images=images[0][None].astype("float32"))
    assert found["scores"].shape == (1, 7 * count) and found["count"] == 7
    boxes = found["boxes"].reshape(7, count, 4)
    assert (boxes == boxes[:, :1]).all()
    assert len({*found["classes"].reshape(7, count)[0].tolist()}) == count
    runtime = open_runtime(path)
    assert runtime.description.classes_per_detection == count
    ours = runtime.run(images[0][None].astype("float32"))
    used = int(ours["num_detections"][0])
    assert used == (found["scores"] > 0.2).sum()
    scores = ours["scores"][0]
    assert (np.diff(scores) <= 0).all() and not scores[used:].any()
    assert (ours["labels"][0, used:] == -1).all() and scores[used - 1] > 0.2


def test_no_class_has_more_boxes_than_it_may(model, images, tmp_path):
    path = tmp_path / "pets.tflite"
    options = {"max_detections": 9, "score_threshold": 0.2, "per_class": True}
    report = model.export(
        path, images=images, verbose=0, detections_per_class=2, **options
    )
    assert report.matched == report.live_detections > 0
    runtime = open_runtime(path)
    assert runtime.description.postprocess.max_detections_per_class == 2
    found = runtime.run(images[0][None].astype("float32"))
    labels = found["labels"][0, : int(found["num_detections"][0])]
    assert np.bincount(labels).tolist() == [2, 2, 2]


def test_a_file_of_another_program_is_refused(tmp_path):
    path = tmp_path / "other.tflite"
    path.write_bytes(bytes(2048))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("labelmap.txt", "cat\n")
    with pytest.raises(ValueError, match="not a .tflite file that .*export.* wrote"):
        open_runtime(path)


@pytest.mark.parametrize("times", [1, 2])
def test_rows_behind_the_last_box_may_hold_any_bits(times):
    """The operation does not write them: a signaling NaN would be a warning."""
    config = tiny_model().config
    about = SimpleNamespace(
        config=config, classes_per_detection=times, postprocess=Postprocess(clip=True)
    )
    runtime = object.__new__(LiteRTRuntime)
    runtime.description = about
    bits = np.full((1, 4, 4), 0x7FA00000, "uint32").view("float32")
    for value in (bits, np.full((1, 4, 4), 3e38, "float32")):
        with np.errstate(all="raise"), warnings.catch_warnings(action="error"):
            found = runtime._detections(
                value, value[..., 0], value[..., 1], np.zeros(1, "float32")
            )
        assert not found["boxes"].any() and not found["scores"].any()
        assert (found["labels"] == -1).all() and found["num_detections"] == [0]
