"""Checkpoints of the TF Object Detection API: read in each of their forms."""

import dataclasses
import hashlib
import re
import tarfile

import numpy as np
import pytest
from support import tfod_files
from support.remote import put_folder
from support.weights import values

from effdet_keras.extras.tfod.checkpoint import TFOD, read_tfod_checkpoint
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network.config import TFOD_TAPS, EfficientDetConfig
from effdet_keras.weights.identify import identify, match_arrays
from effdet_keras.weights.kinds.registry import open_weights
from effdet_keras.weights.locate import located
from effdet_keras.weights.network_arrays import TF1, network_arrays
from effdet_keras.weights.pretrained import config_for_weights
from effdet_keras.weights.read_weights import read_weights

pytest.importorskip("tensorflow")

CONFIG = tfod_files.SMALL.replace(
    anchor_order="aspect_first",
    resize_method="asymmetric",
    backbone_survival_prob=0.8,
    batch_norm_unbiased=True,
)
AVERAGE = "/.OPTIMIZER_SLOT/optimizer/average"
MOMENTUM = "/.OPTIMIZER_SLOT/optimizer/base_optimizer/momentum"


def drawn(config):
    """Random values by TF1 name."""
    rng = np.random.default_rng(0)
    arrays = network_arrays(config)
    return {a.name: rng.normal(size=a.shape).astype("float32") for a in arrays}


VALUES = drawn(CONFIG)
ARRAYS = tfod_files.tfod_arrays(CONFIG, VALUES)


def assert_all_read(source, values=VALUES, config=CONFIG):
    match = match_arrays(source, config)
    assert not match.missing and not match.mismatched and not match.left_over
    for name, value in values.items():
        np.testing.assert_array_equal(match.found[name], value, err_msg=name)


def write(folder, arrays=ARRAYS, number=0, text=None, **more):
    """A checkpoint of these arrays in a folder, and the text of its config."""
    entries = {f"model/{name}": value for name, value in arrays.items()} | more
    tfod_files.write_by_name(folder / f"ckpt-{number}", entries)
    if text is not None:
        (folder / "pipeline.config").write_text(text)
    return folder / f"ckpt-{number}"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """What the exporter writes."""
    folder = tmp_path_factory.mktemp("exported")
    (folder / "checkpoint").mkdir()
    tfod_files.write_with_graph(folder / "checkpoint" / "ckpt-0", ARRAYS)
    state = 'model_checkpoint_path: "ckpt-0"\n'
    (folder / "checkpoint" / "checkpoint").write_text(state)
    variables = folder / "saved_model" / "variables"
    variables.mkdir(parents=True)
    prefix = variables / "variables"
    tfod_files.write_with_graph(prefix, ARRAYS, root="_model", flat=True)
    (folder / "pipeline.config").write_text(tfod_files.pipeline_text(CONFIG))
    return folder


@pytest.fixture
def alone(exported, tmp_path):
    """The checkpoint in a folder without its config."""
    for path in (exported / "checkpoint").glob("ckpt-0.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path / "ckpt-0"


@pytest.mark.parametrize(
    "name, digest",
    [
        ("d0", "8e15fffe47e71354ca5e9034c75bcbfed63cf74299a20d9157c6afbb758670e1"),
        ("d1", "f639280dc09a57aa2ac62c148a7f3db23f12965ae5b2210a6f3ba9d74cf0f4ca"),
    ],
)
def test_names_are_those_of_real_checkpoints(name, digest):
    """The digests are of the names in checkpoints that the API wrote."""
    config = EfficientDetConfig.from_name(f"efficientdet-{name}")
    lines = sorted(f"{a.name} {TFOD.name_of(a)}" for a in network_arrays(config))
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == digest


def test_an_exported_folder_with_what_its_config_says(exported):
    with located(exported) as path:
        source = open_weights(path)
    assert path.name == "ckpt-0"
    assert_all_read(source)
    assert len([n for n in source.others if "layer_with_weights" in n]) == 4
    config, names, ids = config_for_weights(
        "efficientdet-d0", source, class_names=None, category_ids=None, overrides={}
    )
    assert config == CONFIG and names is None and ids is None
    assert source.postprocess["method"] == "hard"
    assert source.postprocess["pre_nms_top_k"] is None
    assert any("somewhere/labels.pbtxt" in note for note in source.notes)


def test_a_saved_model_is_read_along_its_object_graph(exported):
    with located(exported / "saved_model") as path:
        source = open_weights(path)
    assert path.name == "variables"
    assert_all_read(source)
    assert source.config["box_scales"] == CONFIG.box_scales


def test_an_archive_of_the_model_zoo(exported, tmp_path):
    path = tmp_path / "efficientdet_d0_coco17_tpu-32.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(exported, arcname="efficientdet_d0_coco17_tpu-32")
    source = read_weights(path, "efficientdet-d0", verbose=0)
    assert_all_read(source)
    assert source.config["image_size"] == 128


@pytest.mark.parametrize("inner", ["", "/checkpoint/ckpt-0", "/saved_model"])
def test_an_exported_folder_at_an_address(exported, memory, inner):
    put_folder(exported, "/bucket/model")
    beside = "memory://bucket/model/pipeline.config"
    address = f"memory://bucket/model{inner}"
    source = read_weights(address, None, pipeline_config=beside, verbose=0)
    assert_all_read(source)
    assert source.config["box_scales"] == CONFIG.box_scales
    assert source.config["image_size"] == 128


def is_statistic(name):
    return name.endswith(("moving_mean", "moving_variance"))


def test_a_training_checkpoint_with_averages(tmp_path):
    moving = {f"model/{n}": v for n, v in ARRAYS.items() if not is_statistic(n)}
    slots = {f"{name}{AVERAGE}": value + 1 for name, value in moving.items()}
    slots |= {f"{name}{MOMENTUM}": value * 0 for name, value in moving.items()}
    more = {"step": np.int64(3), "optimizer/base_optimizer/decay": np.float32(0)}
    path = write(tmp_path, number=3, **slots, **more)
    raw, source = open_weights(path, averages=False), open_weights(path)
    assert_all_read(raw)
    averaged = {n: v + np.float32(not is_statistic(n)) for n, v in VALUES.items()}
    assert_all_read(source, averaged)
    assert source.num_averages > 0 and raw.num_averages == 0


def test_deeper_backbones_are_tapped_where_theirs_are(tmp_path):
    config = CONFIG.replace(
        backbone="efficientnet-b1", backbone_taps=TFOD_TAPS["efficientnet-b1"]
    )
    values = drawn(config)
    arrays = tfod_files.tfod_arrays(config, values)
    path = write(tmp_path, arrays, text=tfod_files.pipeline_text(config))
    source = open_weights(path)
    assert_all_read(source, values, config)
    assert source.config["backbone_taps"] == (6, 14, 21)
    assert source.config["name"] == "efficientdet-d1"


def test_a_checkpoint_of_step_0_says_that_it_is_one(tmp_path):
    backbone = {n: v for n, v in ARRAYS.items() if "_efficientnet" in n}
    tfod_files.write_with_graph(tmp_path / "ckpt-1", backbone)
    with pytest.raises(ValueError, match="step 0.*later checkpoint"):
        open_weights(tmp_path / "ckpt-1")


def write_classifier(prefix):
    """What the API's zoo has of an EfficientNet: the backbone with ImageNet's top."""
    start = "_feature_extractor/"
    of_backbone = {n: v for n, v in ARRAYS.items() if n.startswith(start)}
    arrays = {
        name.removeprefix(start).partition("/")[2]: value
        for name, value in of_backbone.items()
        if "bifpn" not in name
    }
    tfod_files.write_with_graph(prefix, arrays, root="feature_extractor")


def test_a_classifier_of_its_zoo_is_a_backbone(tmp_path):
    """A `pipeline.config` beside it is of the detector that is to be trained."""
    prefix = tmp_path / "ckpt-0"
    write_classifier(prefix)
    (tmp_path / "pipeline.config").write_text(tfod_files.pipeline_text(CONFIG))
    source = read_weights(prefix, None, verbose=0)
    match = match_arrays(source, CONFIG)
    assert not match.mismatched and not match.left_over
    assert {array.is_backbone for array in match.missing} == {False}
    for name, value in match.found.items():
        np.testing.assert_array_equal(value, VALUES[name], err_msg=name)
    assert len([n for n in source.others if "layer_with_weights" in n]) == 4  # the top
    assert identify(source).names == ("efficientdet-d0",)
    config, *_ = config_for_weights(
        "efficientdet-d0", source, class_names=None, category_ids=None, overrides={}
    )
    assert config == EfficientDetConfig.from_name("efficientdet-d0")
    assert not source.notes


def test_a_classifier_has_no_pipeline_config(exported, tmp_path):
    write_classifier(tmp_path / "ckpt-0")
    path = exported / "pipeline.config"
    with pytest.raises(ValueError, match="only with checkpoints of detectors"):
        read_weights(tmp_path / "ckpt-0", None, pipeline_config=path, verbose=0)


def test_another_model_is_refused_by_name(tmp_path):
    arrays = {"_feature_extractor/resnet/conv/kernel": np.ones((1, 1, 3, 8))}
    with pytest.raises(ValueError, match="not of an EfficientDet"):
        open_weights(write(tmp_path, arrays))


@pytest.mark.parametrize("background", ["add_background_class: true", ""])
def test_background_is_left_out_and_missing_biases_are_zero(tmp_path, background):
    arrays = dict(ARRAYS)
    for name in [n for n in arrays if "/_class_predictor_layers/" in n]:
        value = arrays.pop(name)
        if not name.endswith("depthwise_kernel"):
            by_anchor = value.reshape(*value.shape[:-1], 9, 2)
            value = np.insert(by_anchor, 0, 7.0, -1).reshape(*value.shape[:-1], 27)
        arrays[name.replace("layers/0/", "layers/1/")] = value  # behind a dropout
    values = dict(VALUES)
    for array in network_arrays(CONFIG):
        is_of_layer = "predict" not in array.name and not array.is_backbone
        if array.name.endswith("/bias") and is_of_layer:
            del arrays[TFOD.name_of(array)]
            values[array.name] = np.zeros(8, "float32")
    text = tfod_files.pipeline_text(CONFIG)
    text = text.replace("add_background_class: false", background)
    source = open_weights(write(tmp_path, arrays, text=text))
    assert_all_read(source, values)
    biases, first, *_ = source.notes
    assert re.match("16 biases.*are set to 0.*`force_use_bias: false`", biases)
    assert first.startswith("the background class")


def test_without_a_pipeline_config_the_cure_is_told(exported, alone):
    options = {"class_names": None, "category_ids": None, "overrides": {}}
    source = read_weights(alone, None, verbose=0)
    with pytest.raises(ValueError, match="pipeline_config='"):
        config_for_weights("efficientdet-d0", source, **options)
    path = exported / "pipeline.config"
    source = read_weights(alone, None, pipeline_config=path, verbose=0)
    assert config_for_weights("efficientdet-d0", source, **options)[0] == CONFIG


def test_boxes_of_unknown_scales_are_not_loaded(exported, alone):
    model = EfficientDet(CONFIG.replace(anchor_order="scale_first", box_scales=[1] * 4))
    name = "box_net/box-predict/bias"
    before = values(model)[name]
    for kind in (None, "full"):
        with pytest.raises(ValueError, match="no `pipeline.config` beside.*ckpt-0"):
            model.load_pretrained(alone, checkpoint_type=kind)
    for kind in ("classification", "detection"):  # which take no box layer
        model.load_pretrained(alone, checkpoint_type=kind, verbose=0)
    np.testing.assert_array_equal(values(model)[name], before)
    path = exported / "pipeline.config"
    model.load_pretrained(alone, pipeline_config=path, verbose=0)
    assert (values(model)[name] != before).any()
    # As that API restores it, the whole model into that of its config: as it is.
    same = EfficientDet(CONFIG)
    same.load_pretrained(alone, checkpoint_type="full", verbose=0)
    np.testing.assert_array_equal(values(same)[name], VALUES[name])


def test_taps_are_known_without_a_pipeline_config(tmp_path):
    taps = TFOD_TAPS["efficientnet-b1"]
    config = CONFIG.replace(backbone="efficientnet-b1", backbone_taps=taps)
    path = write(tmp_path, tfod_files.tfod_arrays(config, drawn(config)))
    assert open_weights(path).config["backbone_taps"] == taps
    model = EfficientDet(config.replace(backbone_taps=None))
    with pytest.warns(UserWarning, match=r"backbone_taps=\(6, 14, 21\) \(here None\)"):
        model.load_pretrained(path, checkpoint_type="detection", verbose=0)


@pytest.fixture
def other_classes(tmp_path):
    """The `pipeline.config` of a task with three classes."""
    folder = tmp_path / "mine"
    folder.mkdir()
    text = tfod_files.pipeline_text(CONFIG.replace(num_classes=3))
    (folder / "pipeline.config").write_text(text)
    items = [f"item {{ id: {i} name: '{n}' }}" for i, n in enumerate(NEW_NAMES, 1)]
    (folder / "labels.pbtxt").write_text("".join(items))
    return folder / "pipeline.config"


NEW_NAMES = ("cat", "dog", "ferret")


def test_classes_of_the_next_training_are_not_those_of_the_checkpoint(
    alone, other_classes
):
    model = EfficientDet.from_pipeline_config(other_classes, weights=alone, verbose=0)
    assert model.class_names == NEW_NAMES
    assert model.pretrained == "detector of other classes"
    bias = values(model)["class_net/class-predict/bias"]
    assert (bias < -4).all()  # the prior of new classes
    found = values(model)["box_net/box-predict/bias"]
    np.testing.assert_array_equal(found, VALUES["box_net/box-predict/bias"])
    # People edit the file that was beside the checkpoint, too.
    for name in ("pipeline.config", "labels.pbtxt"):
        (alone.parent / name).write_bytes((other_classes.parent / name).read_bytes())
    source = read_weights(alone, None, verbose=0)
    assert source.class_names is None and source.config["num_classes"] == 2
    assert "has 3 classes" in source.notes[-1] and source.notes[-1].endswith(
        "checkpoint"
    )


def test_a_given_config_of_other_classes_is_refused(alone, other_classes):
    match = r"mine/pipeline.config' has 3 classes, but '.*ckpt-0' has 2: .* not trained"
    with pytest.raises(ValueError, match=match):
        read_weights(alone, None, pipeline_config=other_classes, verbose=0)
    text = other_classes.read_text()
    other_classes.write_text(text.replace("add_background_class: false", ""))
    with pytest.raises(ValueError, match="3 classes and a background class"):
        read_weights(alone, None, pipeline_config=other_classes, verbose=0)


def test_names_of_the_label_map_beside_the_config(exported, tmp_path):
    (tmp_path / "pipeline.config").write_text(tfod_files.pipeline_text(CONFIG))
    (tmp_path / "labels.pbtxt").write_text("item { id: 2 name: 'dog' }")
    prefix = exported / "checkpoint" / "ckpt-0"
    source = read_tfod_checkpoint(prefix, True, tmp_path / "pipeline.config")
    assert source.class_names == ("unused-1", "dog")
    assert source.category_ids == (1, 2)


def test_last_layers_are_converted_to_other_anchors_and_scales(exported):
    with located(exported) as path:
        source = open_weights(path)
    other = CONFIG.replace(anchor_order="scale_first", box_scales=(1.0,) * 4)
    found = match_arrays(source, other).found
    bias = VALUES["box_net/box-predict/bias"].reshape(9, 4)
    order = [0, 3, 6, 1, 4, 7, 2, 5, 8]  # of the anchors there, those here
    converted = found["box_net/box-predict/bias"].reshape(9, 4)
    np.testing.assert_allclose(converted[order], bias / [10, 10, 5, 5], rtol=1e-6)
    back = dataclasses.replace(
        source, scheme=TF1, config=None, arrays={name: found[name] for name in VALUES}
    )
    again = match_arrays(back, CONFIG).found
    for name, value in VALUES.items():
        np.testing.assert_allclose(again[name], value, rtol=1e-6, err_msg=name)
