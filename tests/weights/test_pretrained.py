"""A model that starts from weights of any kind, and goes on from them."""

import dataclasses
import hashlib
import re

import h5py
import numpy as np
import PIL.Image
import pytest
from support.arrays import assert_equal
from support.remote import web_server
from support.tiny import tiny_model
from support.weights import pack, random_arrays, values

from effdet_keras.callbacks import COCOEvaluation
from effdet_keras.cli import import_
from effdet_keras.data import from_arrays, from_coco
from effdet_keras.extras.older_tools import write_tf1_checkpoint
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.train.inputs import adopt_classes
from effdet_keras.weights import presets
from effdet_keras.weights.kinds.keras_h5 import APPLICATIONS
from effdet_keras.weights.kinds.registry import open_weights
from effdet_keras.weights.locate import cache_path, located
from effdet_keras.weights.network_arrays import network_arrays, tf1_name
from effdet_keras.weights.presets import COCO_CLASS_NAMES, find_published_weights
from effdet_keras.weights.read_weights import read_weights

pytestmark = pytest.mark.tensorflow  # checkpoints and data

SMALL = {"image_size": 64, "max_level": 6}


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """Puts stand-ins of published files where they are kept after a download."""
    monkeypatch.setenv("EFFDET_KERAS_CACHE", str(tmp_path / "cache"))

    def put(name, key):
        preset = find_published_weights(name, key)
        arrays = random_arrays(preset.config())
        folder = tmp_path / name
        write_tf1_checkpoint(folder / "model", arrays)
        pack(cache_path(preset.url), folder)
        return arrays

    return put


def coco_truth(*ids):
    """A COCO json of one image, with an object of each category."""
    names = [*enumerate(COCO_CLASS_NAMES, 1)]
    shared = {"image_id": 7, "area": 4800.0, "iscrowd": 0}
    return {
        "images": [{"id": 7, "file_name": "p.png", "height": 512, "width": 512}],
        "annotations": [
            {"id": n, "category_id": i, "bbox": [100.0 * n, 50.0, 80.0, 60.0], **shared}
            for n, i in enumerate(ids)
        ],
        "categories": [{"id": i, "name": n} for i, n in names if "unused" not in n],
    }


def test_coco_weights_name_their_outputs_and_evaluate_right(cached, capsys, tmp_path):
    arrays = cached("efficientdet-d0", "coco")
    model = EfficientDet.from_preset("efficientdet-d0", weights="coco")
    assert_equal(values(model), arrays)
    assert "Loaded 709 of 709 weights" in capsys.readouterr().out
    assert model.num_classes == 90
    names = dict(zip(model.category_ids, model.class_names))
    assert (names[1], names[13], names[90]) == ("person", "stop sign", "toothbrush")

    ids = (1, 13, 90)
    PIL.Image.new("RGB", (512, 512)).save(tmp_path / "p.png")
    valid = from_coco(coco_truth(*ids), tmp_path)
    _, truth = next(iter(model.batches(valid, 1, image_size=512)))
    labels = sorted(np.asarray(truth["labels"])[0].tolist())
    assert labels == [i - 1 for i in ids]

    found = {  # what a perfect model says, of 90 outputs
        "boxes": np.array([[[50, 100 * n, 110, 100 * n + 80] for n in range(3)]]),
        "scores": np.array([[0.9, 0.8, 0.7]]),
        "labels": np.array([[i - 1 for i in ids]]),
        "num_detections": np.array([3]),
    }
    model.predict_on_batch = lambda images: found
    numbers = COCOEvaluation(valid, batch_size=1, verbose=False).evaluate(model)
    assert numbers["AP"] == pytest.approx(1)
    assert numbers["AP/stop sign"] == pytest.approx(1)
    detections = model.detect(np.zeros((512, 512, 3), "uint8"))
    assert detections.names == ("person", "stop sign", "toothbrush")
    records = dataclasses.replace(detections, image_id=7).to_coco()
    assert [record["category_id"] for record in records] == list(ids)


def test_imagenet_weights_fill_the_backbone_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("EFFDET_KERAS_CACHE", str(tmp_path / "cache"))
    preset = find_published_weights("efficientdet-d0", "imagenet")
    path, arrays = cache_path(preset.url), {}
    path.parent.mkdir()
    with h5py.File(path, "w") as file:
        for array in network_arrays(preset.config()):
            if array.is_backbone:
                layer, leaf = APPLICATIONS.name_of(array).split("/")
                value = np.full(array.shape, 1 + len(arrays), "float32")
                file[f"{layer}/{layer}/{leaf}:0"] = arrays[array.name] = value
        file["top_conv/top_conv/kernel:0"] = np.zeros((1, 1, 320, 1280))
    md5 = hashlib.md5(path.read_bytes()).hexdigest()
    stand_in = dataclasses.replace(preset, md5=md5)
    monkeypatch.setitem(presets._PUBLISHED, ("efficientdet-d0", "imagenet"), stand_in)
    model = EfficientDet.from_preset("efficientdet-d0", num_classes=2, **SMALL)
    before = values(model)
    report = model.load_pretrained("imagenet", verbose=0)
    assert report.new[0].reason == "the file contains only a backbone"
    assert report.left_over == ("top_conv/kernel",)
    assert_equal(values(model), before | arrays)
    assert model.class_names is None


@pytest.fixture(scope="module")
def d0():
    model = EfficientDet.from_preset(
        "efficientdet-d0", class_names=("cat", "dog"), **SMALL
    )
    for variable in model.weights:
        rng = np.random.default_rng(len(variable.path))
        variable.assign(rng.uniform(0.01, 0.1, variable.shape))
    return model


@pytest.mark.parametrize(
    "ending",
    [
        "model",
        "d0.safetensors",
        pytest.param("d0.pth", marks=pytest.mark.extra_packages),
    ],
)
def test_round_trips_are_exact(d0, tmp_path, ending):
    if ending != "model":
        pytest.importorskip("torch" if ending == "d0.pth" else "safetensors")
    format = "automl-tf1" if ending == "model" else "torch-effdet"
    d0.export_checkpoint(tmp_path / "a" / ending, format=format)
    again = EfficientDet.from_preset(
        "efficientdet-d0", weights=tmp_path / "a" / ending, verbose=0, **SMALL
    )
    assert_equal(values(again), values(d0))
    again.export_checkpoint(tmp_path / "b" / ending, format=format)
    first, second = (open_weights(tmp_path / part / ending) for part in "ab")
    assert_equal(first.arrays, second.arrays)
    assert first.others == second.others


@pytest.mark.slow
def test_what_weights_were_trained_with_is_taken_over_or_told(cached):
    cached("efficientdet-d0", "coco-advprop")
    other = EfficientDet.from_preset("efficientdet-d0", image_size=128, num_classes=2)
    with pytest.warns(UserWarning, match=r"mean_rgb=\(127.5.*pad_rgb=\(0.0"):
        report = other.load_pretrained("coco-advprop", verbose=0)
    assert "mean_rgb=(127.5" in report.notes[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"backbone_padding": "symmetric"},
        {"backbone_batch_norm_epsilon": 1e-5},
        {"redundant_bias": False},
        {"fpn_padding": "symmetric"},
        {"fpn_upsampling": "bilinear"},
        {"fpn_name": "qufpn"},
        {"backbone": "efficientnetv2-b0"},
        {"backbone_activation": "relu"},
    ],
    ids=str,
)
def test_networks_that_google_automl_has_not_are_not_written_for_it(tmp_path, fields):
    model = EfficientDet(tiny_model().config.replace(**fields))
    ((name, value),) = fields.items()
    with pytest.raises(ValueError, match=f"google/automl .* with {name}={value!r}"):
        model.export_checkpoint(tmp_path / "x" / "model", "automl-tf1")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "text", ['model_checkpoint_path: "/data/model.ckpt-12000"\n', "notes", None]
)
def test_the_checkpoint_file_of_another_training_stays(tmp_path, text):
    state = tmp_path / "checkpoint"
    if text is None:
        state.mkdir()
        state = state / "mine.txt"
        text = "mine"
    state.write_text(text)
    model = tiny_model()
    with pytest.warns(UserWarning, match="names another checkpoint.*prefix '.*/mine'"):
        model.export_checkpoint(tmp_path / "mine", format="automl-tf1")
    assert state.read_text() == text
    assert_equal(open_weights(tmp_path / "mine").arrays, values(model))


def test_the_checkpoint_file_of_the_same_prefix_is_replaced(tmp_path):
    model = tiny_model()
    for _ in range(2):
        model.export_checkpoint(tmp_path / "mine", format="automl-tf1")
    names = re.findall('"(.*)"', (tmp_path / "checkpoint").read_text())
    assert names == ["mine", "mine"]


def test_weights_and_averages_are_both_exported(tmp_path):
    model = tiny_model()
    model.compile()
    for variable in model.weights:
        variable.assign(variable + 1.0)
    model.export_checkpoint(tmp_path / "model", format="automl-tf1")
    raw = open_weights(tmp_path / "model", averages=False).arrays
    assert_equal(raw, values(model))
    averaged = open_weights(tmp_path / "model").arrays
    for source, average in zip(model.averages.sources, model.averages.values):
        np.testing.assert_array_equal(averaged[tf1_name(source)], average)
    assert any((averaged[name] != raw[name]).any() for name in raw)
    with model.averages.swapped():
        model.export_checkpoint(tmp_path / "swapped" / "model", format="automl-tf1")
    for averages, expected in ((False, raw), (True, averaged)):
        swapped = open_weights(tmp_path / "swapped" / "model", averages=averages)
        assert_equal(swapped.arrays, expected)
    with pytest.raises(ValueError, match=r"'automl-tf1', 'torch-effdet'.*'onnx'"):
        model.export_checkpoint(tmp_path / "other", format="onnx")


def test_a_file_says_its_classes_and_config(d0, tmp_path):
    d0.save(tmp_path / "pets.keras")
    again = EfficientDet.from_preset(
        "efficientdet-d0", weights=tmp_path / "pets.keras", verbose=0
    )
    assert again.class_names == ("cat", "dog")
    assert again.config == d0.config
    model = EfficientDet.from_preset("efficientdet-d0", num_classes=2, **SMALL)
    model.load_pretrained(tmp_path / "pets.keras", verbose=0)
    assert model.class_names == ("cat", "dog")
    with pytest.raises(
        ValueError, match=r"belong to efficientdet-d0.*'efficientdet-d1'"
    ):
        EfficientDet.from_preset("efficientdet-d1", weights=tmp_path / "pets.keras")


def test_a_detector_with_new_classes_keeps_the_ids_of_the_old(d0, tmp_path):
    old = EfficientDet(d0.config, class_names=("cat", "dog"), category_ids=(3, 7))
    old.save(tmp_path / "old.keras")

    def ids_of(*names, **arguments):
        model = EfficientDet.from_preset(
            "efficientdet-d0",
            weights=tmp_path / "old.keras",
            class_names=names,
            verbose=0,
            **arguments,
        )
        images = np.zeros((1, 64, 64, 3), "uint8")
        boxes, labels = [[[8.0, 8.0, 40.0, 40.0]]], [[0]]
        adopt_classes(model, from_arrays(images, boxes, labels, ["fox"]))  # of id 1
        return model.category_ids

    assert ids_of("cat", "dog", "fox") == (3, 7, 8)
    assert ids_of("fox", "dog", "cat") == (8, 7, 3)
    assert ids_of("cat", "dog", "fox", category_ids=(1, 2, 3)) == (1, 2, 3)
    assert ids_of("dog", "fox")[1] == 1  # another task: that of the dataset


def test_names_given_for_a_file_must_be_as_many_as_its_classes(d0, tmp_path):
    d0.save_weights(tmp_path / "pets.weights.h5")
    with pytest.raises(ValueError, match=r"2 classes.*pets.*names=3"):
        d0.load_pretrained(
            tmp_path / "pets.weights.h5", class_names=("cat", "dog", "fox")
        )


def test_ninety_outputs_without_names_are_taken_for_cocos(tmp_path):
    config = find_published_weights("efficientdet-d0", "coco").config().replace(**SMALL)
    arrays = random_arrays(config)
    write_tf1_checkpoint(tmp_path / "model", arrays)
    model = EfficientDet.from_preset(
        "efficientdet-d0", weights=tmp_path, class_names=("fox", "dog"), **SMALL
    )
    bias = values(model)["class_net/class-predict/bias"].reshape(9, 2)
    theirs = arrays["class_net/class-predict/bias"].reshape(9, 90)
    np.testing.assert_array_equal(bias[:, 1], theirs[:, 18 - 1])  # COCO's dog
    assert (bias[:, 0] < -4).all()  # the prior of a new class


@pytest.fixture
def server(tmp_path):
    with web_server(tmp_path) as server:
        yield server


def test_an_archive_behind_an_address_is_fetched_once(
    d0, server, tmp_path, monkeypatch
):
    monkeypatch.setenv("EFFDET_KERAS_CACHE", str(tmp_path / "cache"))
    d0.export_checkpoint(tmp_path / "d0" / "model", format="automl-tf1")
    pack(tmp_path / "d0.tar.gz", tmp_path / "d0")
    model = EfficientDet.from_preset("efficientdet-d0", num_classes=2, **SMALL)
    for _ in range(2):
        url = f"{server.address}/d0.tar.gz?key=secret"
        report = model.load_pretrained(url, verbose=0)
        assert "secret" not in str(report)
        assert report.num_averages == len(model.weights)
    assert_equal(values(model), values(d0))
    assert len(server.asked) == 1
    before = values(model)
    with pytest.raises(OSError, match=r"none\.pth"):
        model.load_pretrained(f"{server.address}/none.pth", verbose=0)
    with pytest.raises(ValueError, match="sha256"):
        model.load_pretrained(f"{server.address}/d0.tar.gz", sha256="0" * 64, verbose=0)
    assert_equal(values(model), before)


def test_import_asks_where_a_file_fits_several_models(tmp_path):
    config = (
        find_published_weights("efficientdet-d6", "coco")
        .config()
        .replace(num_classes=2)
    )
    zeros = {a.name: np.zeros(a.shape, "float32") for a in network_arrays(config)}
    write_tf1_checkpoint(tmp_path / "d6", zeros)
    with pytest.raises(ValueError, match=r"efficientdet-d6 or efficientdet-d7.*--mod"):
        import_.run(tmp_path / "d6", tmp_path / "d6.keras")
    with pytest.raises(
        ValueError, match=r"published weights 'coco' exist for several models.*--model"
    ):
        import_.run("coco", tmp_path / "d6.keras")
    assert not (tmp_path / "d6.keras").exists()


def test_a_word_is_a_key_or_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for typo, meant in (("imagnet", "imagenet"), ("Coco", "coco")):
        match = rf"Did you mean '{meant}'\?.*{typo}.*'coco', 'coco-advp.*'imagenet'"
        with pytest.raises(ValueError, match=match):
            read_weights(typo, None)
    (tmp_path / "imagnet").mkdir()
    with pytest.raises(ValueError, match="The folder 'imagnet' contains no weights"):
        read_weights("imagnet", None)
    (tmp_path / "model.index").write_text("")
    with pytest.raises(ValueError, match="'model' is damaged or incomplete"):
        read_weights("model", None)
    for path in ("runs/cats", "cats.h5", "./cats"):
        with pytest.raises(FileNotFoundError, match="There is no"):
            read_weights(path, None)


def test_a_tensorflow_checkpoint_is_fetched_with_all_its_files(memory):
    for name in ("m.index", "m.data-00000-of-00001", "n.index"):
        memory.pipe_file(f"/bucket/{name}", name.encode())
    with located("memory://bucket/m", verbose=0) as path:
        files = {file.name: file.read_text() for file in path.parent.iterdir()}
    names = ("m.index", "m.data-00000-of-00001")
    assert (path.name, files) == ("m", {name: name for name in names})
