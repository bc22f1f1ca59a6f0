"""TensorFlow checkpoints: every array read bit by bit, written, and damaged."""

import json
import os
import pathlib
import shutil

import keras
import numpy as np
import pytest
from support import automl_files
from support.network_outputs import assert_outputs_equal

from effdet_keras.extras.older_tools import write_tf1_checkpoint
from effdet_keras.model.config import EfficientDetConfig
from effdet_keras.model.network import build_network
from effdet_keras.weights.identify import identify, match_arrays
from effdet_keras.weights.kinds.automl import (
    OBJECT_GRAPH,
    published_names,
    read_tensorflow_checkpoint,
)
from effdet_keras.weights.network_arrays import TF1, network_arrays, tf1_name

tf = pytest.importorskip("tensorflow")

D0 = EfficientDetConfig.from_name("efficientdet-d0")
RAW = "refdet-raw"


def assert_whole(source, refweights, salt="refdet-v1", config=D0):
    """Each array of the network is there, bit by bit, and nothing else is."""
    match = match_arrays(source, config)
    assert (match.missing, match.left_over, match.mismatched) == ([], [], {})
    for name, array in match.found.items():
        expected = refweights.value(name, array.shape, config.name, salt)
        np.testing.assert_array_equal(array, expected, err_msg=name)


# Reading, by the lists of names


@pytest.fixture(scope="module")
def tf1_tensors(golden_path, refweights):
    return automl_files.tf1_tensors(golden_path, refweights)


@pytest.fixture(scope="module")
def graph_tensors(golden_path, refweights):
    return automl_files.graph_tensors(golden_path, refweights)


def read(folder, tensors, **arguments):
    prefix = automl_files.save_tensors(folder / "model", tensors)
    return read_tensorflow_checkpoint(prefix, **arguments)


@pytest.mark.parametrize("averages, salt", [(True, "refdet-v1"), (False, RAW)])
def test_tf1_names_give_averages_or_raw_values(
    tmp_path, tf1_tensors, refweights, averages, salt
):
    source = read(tmp_path, tf1_tensors, averages=averages)
    assert_whole(source, refweights, salt)
    assert source.scheme == TF1
    assert source.num_averages == (709 if averages else 0)
    slots = {name for name in tf1_tensors if name.endswith("/Momentum")}
    unread = {name for name in tf1_tensors if name.endswith(automl_files.AVERAGE)}
    others = {"global_step", "beta1_power", *slots, *(() if averages else unread)}
    assert set(source.others) == others
    assert str(identify(source)) == "efficientdet-d0, 90 classes"


def test_averages_alone_and_raw_values_alone_are_read(
    tmp_path, tf1_tensors, refweights
):
    end = automl_files.AVERAGE
    averages = {k: v for k, v in tf1_tensors.items() if k.endswith(end)}
    source = read(tmp_path, averages)
    assert_whole(source, refweights)
    assert source.num_averages == 709
    with pytest.raises(ValueError, match="averages alone.*`averages=True`"):
        read(tmp_path, averages, averages=False)
    raw = {k: v for k, v in tf1_tensors.items() if k + end in tf1_tensors}
    source = read(tmp_path, raw)
    assert_whole(source, refweights, RAW)
    assert (source.num_averages, source.others) == (0, ())


def test_the_second_model_of_a_process_is_read(tmp_path, tf1_tensors, refweights):
    def counted_on(name):
        name = name.replace("b0/stem/conv2d/", "b0/stem_1/conv2d_1/")
        return name.replace(
            "b0/stem/tpu_batch_normalization/", "b0/stem_1/tpu_batch_normalization_1/"
        )

    counted = {counted_on(name): value for name, value in tf1_tensors.items()}
    assert len(set(counted) - set(tf1_tensors)) == 13  # 5 names, 5 averages, 3 momenta
    assert_whole(read(tmp_path, counted), refweights)


@pytest.mark.parametrize("averages, salt", [(True, "refdet-v1"), (False, RAW)])
def test_object_graphs_give_averages_or_raw_values(
    tmp_path, graph_tensors, refweights, averages, salt
):
    source = read(tmp_path, graph_tensors, averages=averages)
    assert source.scheme == OBJECT_GRAPH
    assert source.num_averages == (493 if averages else 0)
    match = match_arrays(source, D0)
    assert (match.missing, match.left_over, match.mismatched) == ([], [], {})
    for name, array in match.found.items():
        # Batch norm's statistics have no averages.
        own = "refdet-v1" if "/moving_" in name else salt
        np.testing.assert_array_equal(
            array, refweights.value(name, array.shape, salt=own), err_msg=name
        )
    not_read = 4 + 493 + (0 if averages else 493)
    assert len(source.others) == not_read
    assert set(source.others) <= set(graph_tensors)


@pytest.mark.parametrize("format", ["tf1", "graph"])
def test_a_prefix_of_all_names_is_taken_off(
    tmp_path, tf1_tensors, graph_tensors, refweights, format
):
    tensors = tf1_tensors if format == "tf1" else graph_tensors
    prefixed = {
        f"model/{name}": value for name, value in tensors.items() if "/" in name
    }
    assert_whole(read(tmp_path, prefixed), refweights)


def test_the_trainer_on_a_hub_module_is_read(tmp_path, golden_path, refweights):
    tensors = automl_files.hub_tensors(golden_path, refweights)
    source = read(tmp_path, tensors)
    assert_whole(source, refweights)
    assert (source.scheme, len(source.others)) == (TF1, 1)


def test_a_backbone_is_read_and_its_classifier_left_over(
    tmp_path, golden_path, refweights
):
    tensors = {}
    for name, shape, *_ in automl_files.rows(golden_path("names_d0_backbone.txt")):
        tensors[name + automl_files.AVERAGE] = np.zeros(shape, "float32")
    source = read(tmp_path, tensors)
    match = match_arrays(source, D0)
    assert not any(array.is_backbone for array in match.missing)
    assert match.left_over
    assert all(name.startswith("efficientnet-b0/head") for name in match.left_over)


@pytest.mark.parametrize(
    "names, message",
    [
        (["conv/kernel"], "'.*model' holds the weights of another network"),
        ([], "holds the weights of another network"),
        (["a/fpn_cells/x", "b/fpn_cells/x"], "several networks.*a/fpn_cells/x"),
        (
            [
                "efficientnet-b0/stem/conv2d/kernel",
                "efficientnet-b0/stem_1/conv2d/kernel",
            ],
            "several networks",
        ),
    ],
)
def test_other_networks_are_refused(tmp_path, names, message):
    tensors = {name: np.zeros(2, "float32") for name in names}
    with pytest.raises(ValueError, match=message):
        read(tmp_path, {**tensors, "global_step": np.int64(1)})


# Reading the reference's own files


@pytest.mark.parametrize(
    "name, averages, salt",
    [
        ("ckpt_d0_tf1/model", True, "refdet-v1"),
        ("ckpt_d0_tf1/model", False, RAW),
        ("ckpt_d0_keras/plain", True, "refdet-v1"),
    ],
)
def test_the_reference_checkpoint_is_read(
    checkpoint_path, refweights, name, averages, salt
):
    index = checkpoint_path(f"{name}.index")
    source = read_tensorflow_checkpoint(index.with_suffix(""), averages=averages)
    assert_whole(source, refweights, salt)


@pytest.mark.parametrize("averages", [True, False])
def test_the_reference_trainer_checkpoint_is_read(checkpoint_path, averages):
    prefix = str(checkpoint_path("ckpt_d0_trainer/emackpt-1.index").with_suffix(""))
    source = read_tensorflow_checkpoint(prefix, averages=averages)
    match = match_arrays(source, D0)
    assert (match.missing, match.left_over, match.mismatched) == ([], [], {})
    assert source.num_averages == (493 if averages else 0)
    names = {array.name: OBJECT_GRAPH.name_of(array) for array in network_arrays(D0)}
    reader = tf.train.load_checkpoint(prefix)
    num_slots = 0
    for name, array in match.found.items():
        raw = names[name] + automl_files.VALUE
        slot = names[name] + automl_files.SLOT + "average" + automl_files.VALUE
        takes_slot = averages and reader.has_tensor(slot)
        num_slots += takes_slot
        np.testing.assert_array_equal(
            array, reader.get_tensor(slot if takes_slot else raw), err_msg=name
        )
    assert num_slots == source.num_averages


def test_the_reference_partial_checkpoint_is_read(golden_path):
    prefix = str(golden_path("ckpt_d0_tf1_partial/model.index").with_suffix(""))
    source = read_tensorflow_checkpoint(prefix)
    match = match_arrays(source, D0)
    assert (len(match.found), len(match.missing), match.left_over) == (19, 689, [])
    assert match.mismatched["class_net/class-predict/bias"].shape == (27,)
    reader = tf.train.load_checkpoint(prefix)
    for name, array in match.found.items():
        np.testing.assert_array_equal(array, reader.get_tensor(name), err_msg=name)


# From a checkpoint to the outputs


@pytest.mark.tensorflow  # tests/model/test_network.py has them on every backend
@pytest.mark.parametrize("name", ["efficientdet-d0", "efficientdet-lite0"])
def test_outputs_from_a_checkpoint_equal_the_reference(
    tmp_path, golden, golden_path, refweights, name
):
    arrays = golden(f"a_{name.removeprefix('efficientdet-')}_s128.npz")
    meta = json.loads(str(arrays["meta"]))
    config = EfficientDetConfig.from_name(
        name, image_size=meta["image_size"], mean_rgb=0.0, stddev_rgb=1.0
    )
    tensors = {
        array.name + automl_files.AVERAGE: refweights.value(
            array.name, array.shape, name
        )
        for array in network_arrays(config)
    }
    found = match_arrays(read(tmp_path, tensors), config).found
    network = keras.Model(*build_network(config))
    for variable in network.weights:
        variable.assign(found[tf1_name(variable)])
    shape = (meta["batch"], *config.image_size, 3)
    outputs = network(refweights.image(meta["input_seed"], shape), training=False)
    assert_outputs_equal(outputs, lambda head, p: arrays[f"{head}/p{p}"], config)


# Writing


def names_in(prefix):
    return {name for name, _ in tf.train.list_variables(prefix)}


@pytest.mark.parametrize("format", ["tf1", "graph"])
def test_what_was_read_is_written_and_read_back_bit_equal(
    tmp_path, tf1_tensors, graph_tensors, refweights, format
):
    tensors = tf1_tensors if format == "tf1" else graph_tensors
    averaged = match_arrays(read(tmp_path, tensors), D0).found
    raw = match_arrays(read(tmp_path, tensors, averages=False), D0).found
    prefix = str(tmp_path / "out" / "model")
    write_tf1_checkpoint(prefix, raw, averaged, global_step=7)
    for averages, expected in ((True, averaged), (False, raw)):
        again = read_tensorflow_checkpoint(prefix, averages=averages).arrays
        assert set(again) == set(expected)
        for name, array in expected.items():
            assert again[name].dtype == np.float32
            np.testing.assert_array_equal(again[name], array, err_msg=name)


def test_a_written_checkpoint_is_what_the_reference_programs_look_for(tmp_path):
    prefix = str(tmp_path / "model")
    arrays = {"fpn_cells/a": np.ones(3), "fpn_cells/b": np.float32(2)}
    write_tf1_checkpoint(prefix, arrays, {"fpn_cells/a": np.zeros(3)}, global_step=9)
    assert tf.train.latest_checkpoint(str(tmp_path)) == prefix
    values = {n: tf.train.load_variable(prefix, n) for n in names_in(prefix)}
    assert {name: value.tolist() for name, value in values.items()} == {
        "fpn_cells/a": [1, 1, 1],
        "fpn_cells/a/ExponentialMovingAverage": [0, 0, 0],
        "fpn_cells/b": 2,
        "fpn_cells/b/ExponentialMovingAverage": 2,  # as the raw value
        "global_step": 9,
    }
    assert values["global_step"].dtype == np.int64
    assert values["fpn_cells/a"].dtype == np.float32


def test_a_written_folder_may_be_moved(tmp_path):
    write_tf1_checkpoint(tmp_path / "here" / 'a "b" ü', {"fpn_cells/a": np.ones(3)})
    os.rename(tmp_path / "here", tmp_path / "there")
    found = tf.train.latest_checkpoint(str(tmp_path / "there"))
    assert found == str(tmp_path / "there" / 'a "b" ü')


@pytest.mark.parametrize("name", ["efficientdet-d7x", "efficientdet-lite3x"])
def test_every_name_of_a_large_network_makes_the_round_trip(tmp_path, name):
    # The shapes stand for the arrays: those of D7x are 310 MB.
    config = EfficientDetConfig.from_name(name)
    shapes = {array.name: np.array(array.shape) for array in network_arrays(config)}
    write_tf1_checkpoint(tmp_path / "model", shapes)
    source = read_tensorflow_checkpoint(tmp_path / "model")
    assert {n: tuple(a) for n, a in source.arrays.items()} == {
        array.name: array.shape for array in network_arrays(config)
    }
    assert len(source.arrays) == source.num_averages
    match = match_arrays(source, config)
    assert (match.missing, match.left_over) == ([], [])


def test_a_second_checkpoint_replaces_the_first(tmp_path):
    for value in (1.0, 2.0):
        write_tf1_checkpoint(tmp_path / "model", {"fpn_cells/a": value})
    assert read_tensorflow_checkpoint(tmp_path / "model").arrays["fpn_cells/a"] == 2
    assert len(os.listdir(tmp_path)) == 3


@pytest.mark.parametrize("succeeding", range(4))
def test_a_failed_rename_leaves_the_first_checkpoint(tmp_path, monkeypatch, succeeding):
    write_tf1_checkpoint(tmp_path / "model", {"fpn_cells/a": 1.0})
    write_tf1_checkpoint(tmp_path / "other", {"fpn_cells/a": 3.0})  # the latest
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    replace, calls = os.replace, []

    def replace_until(source, target):
        calls.append(target)
        if len(calls) == succeeding + 1:
            raise OSError("no space left")
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace_until)
    if succeeding == 3:  # all of its files
        write_tf1_checkpoint(tmp_path / "model", {"fpn_cells/a": 2.0})
        return
    with pytest.raises(OSError, match="no space"):
        write_tf1_checkpoint(tmp_path / "model", {"fpn_cells/a": 2.0})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_prefix_without_a_name_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="must end in a name"):
        write_tf1_checkpoint("folder/", {})
    assert os.listdir(tmp_path) == []


# Damage


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    arrays = {f"fpn_cells/cell_0/x{i}": np.full(3 + i, i) for i in range(20)}
    write_tf1_checkpoint(folder / "model", arrays)
    return folder


@pytest.fixture
def copy(small, tmp_path):
    return shutil.copytree(small, tmp_path / "copy")


def test_a_checkpoint_that_is_not_there_is_named():
    with pytest.raises(FileNotFoundError, match=r"no file 'nowhere/model\.index'"):
        read_tensorflow_checkpoint("nowhere/model")


DATA = "model.data-00000-of-00001"


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / DATA).unlink(),
        lambda folder: os.truncate(folder / DATA, 100),
        lambda folder: os.truncate(folder / DATA, 0),
        lambda folder: os.truncate(folder / "model.index", 100),
        lambda folder: os.truncate(folder / "model.index", 0),
        lambda folder: (folder / "model.index").write_bytes(b"<html>not found"),
        lambda folder: flip(folder / DATA, -20),
    ],
    ids=["no data", "short data", "no bytes", "short index", "empty", "html", "flip"],
)
def test_damaged_files_are_told_with_the_cure(copy, damage):
    damage(copy)
    message = r"'.*copy/model' is damaged or incomplete.*needs '.*model\.index'.*again"
    with pytest.raises(ValueError, match=message):
        read_tensorflow_checkpoint(copy / "model")


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 0x5A
    pathlib.Path(path).write_bytes(data)


def test_a_second_models_segmentation_head_is_counted_from_zero():
    ours = ["conv2d_transpose", "conv2d_transpose_1", "conv2d_transpose_10"]
    theirs = ["conv2d_transpose_5", "conv2d_transpose_6", "conv2d_transpose_15"]
    names = [f"segmentation_head/{name}/kernel" for name in theirs]
    found = published_names(names, TF1, "x")
    assert list(found.values()) == [f"segmentation_head/{n}/kernel" for n in ours]


def test_the_object_graph_has_a_name_for_each_array_of_the_segmentation_head():
    config = EfficientDetConfig(heads=("object_detection", "segmentation"))
    names = {
        array.name: OBJECT_GRAPH.name_of(array)
        for array in network_arrays(config)
        if array.is_segmentation
    }
    assert names["segmentation_head/conv2d_transpose_2/kernel"] == (
        "seg_head/con2d_ts/2/kernel"
    )
    assert names["segmentation_head/bn_3/moving_mean"] == (
        "seg_head/con2d_t_bns/3/moving_mean"
    )
    assert names["segmentation_head/conv2d_transpose_4/bias"] == (
        "seg_head/head_transpose/bias"
    )
    assert len(set(names.values())) == 22
