"""TensorFlow checkpoints: every array read bit by bit, written, and damaged."""

import shutil

import numpy as np
import pytest
from support import automl_files
from support.weights import whole_match

from effdet_keras.extras.older_tools import write_tf1_checkpoint
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.weights.identify import identify, match_arrays
from effdet_keras.weights.kinds.automl import OBJECT_GRAPH, read_tensorflow_checkpoint
from effdet_keras.weights.network_arrays import TF1, network_arrays

tf = pytest.importorskip("tensorflow")

D0 = EfficientDetConfig.from_name("efficientdet-d0")
RAW = "refdet-raw"


def assert_whole(source, refweights, salt="refdet-v1", config=D0):
    """Each array of the network is there, bit by bit, and nothing else is."""
    for name, array in whole_match(source, config).items():
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


def of_second_model(name):
    bn = "tpu_batch_normalization"
    name = name.replace("b0/stem/conv2d/", "b0/stem_1/conv2d_1/")
    return name.replace(f"b0/stem/{bn}/", f"b0/stem_1/{bn}_1/")


def prefixed(tensors):
    return {f"model/{name}": value for name, value in tensors.items() if "/" in name}


def test_other_ways_to_name_the_same_arrays(
    tmp_path, tf1_tensors, graph_tensors, golden_path, refweights
):
    second = {of_second_model(name): value for name, value in tf1_tensors.items()}
    assert len(set(second) - set(tf1_tensors)) == 13  # 5 names, 5 averages, 3 momenta
    for tensors, scheme in (
        (second, TF1),
        (automl_files.hub_tensors(golden_path, refweights), TF1),
        (prefixed(tf1_tensors), TF1),
        (prefixed(graph_tensors), OBJECT_GRAPH),
    ):
        source = read(tmp_path, tensors)
        assert_whole(source, refweights)
        assert source.scheme == scheme


def test_averages_alone_and_raw_values_alone_are_read(
    tmp_path, tf1_tensors, refweights
):
    end = automl_files.AVERAGE
    averages = {k: v for k, v in tf1_tensors.items() if k.endswith(end)}
    source = read(tmp_path, averages)
    assert_whole(source, refweights)
    assert source.num_averages == 709
    with pytest.raises(ValueError, match="only moving averages.*`averages=True`"):
        read(tmp_path, averages, averages=False)
    raw = {k: v for k, v in tf1_tensors.items() if k + end in tf1_tensors}
    source = read(tmp_path, raw)
    assert_whole(source, refweights, RAW)
    assert (source.num_averages, source.others) == (0, ())


@pytest.mark.parametrize("averages, salt", [(True, "refdet-v1"), (False, RAW)])
def test_object_graphs_give_averages_or_raw_values(
    tmp_path, graph_tensors, refweights, averages, salt
):
    source = read(tmp_path, graph_tensors, averages=averages)
    assert source.scheme == OBJECT_GRAPH
    assert source.num_averages == (493 if averages else 0)
    for name, array in whole_match(source, D0).items():
        # Batch norm's statistics have no averages.
        own = "refdet-v1" if "/moving_" in name else salt
        np.testing.assert_array_equal(
            array, refweights.value(name, array.shape, salt=own), err_msg=name
        )
    not_read = 4 + 493 + (0 if averages else 493)
    assert len(source.others) == not_read
    assert set(source.others) <= set(graph_tensors)


@pytest.mark.parametrize("averages", [True, False])
def test_a_file_whose_variables_are_the_averages_says_so(
    tmp_path, graph_tensors, averages
):
    """`emackpt-*`: the raw weights of that training are in no file."""
    same = dict(graph_tensors)
    for key, value in graph_tensors.items():
        variable, slot, _ = key.partition("/.OPTIMIZER_SLOT/")
        if slot and key.endswith(f"/average{automl_files.VALUE}"):
            same[variable + automl_files.VALUE] = value
    notes = read(tmp_path, same, averages=averages).notes
    assert ["no raw weights" in note for note in notes] == [True] * (not averages)
    assert not read(tmp_path, graph_tensors, averages=averages).notes


def test_a_backbone_is_read_and_its_classifier_left_over(
    tmp_path, golden_path, refweights
):
    tensors = {
        name + automl_files.AVERAGE: np.zeros(shape, "float32")
        for name, shape, *_ in automl_files.rows(golden_path("names_d0_backbone.txt"))
    }
    source = read(tmp_path, tensors)
    match = match_arrays(source, D0)
    assert not any(array.is_backbone for array in match.missing)
    assert match.left_over
    assert all(name.startswith("efficientnet-b0/head") for name in match.left_over)


STEMS = [f"efficientnet-b0/{stem}/conv2d/kernel" for stem in ("stem", "stem_1")]


@pytest.mark.parametrize(
    "names, message",
    [
        (["conv/kernel"], "'.*model' contains the weights of another network"),
        ([], "contains the weights of another network"),
        (["a/fpn_cells/x", "b/fpn_cells/x"], "several networks.*a/fpn_cells/x"),
        (STEMS, "several networks"),
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
    assert source.num_averages == (493 if averages else 0)
    names = {array.name: OBJECT_GRAPH.name_of(array) for array in network_arrays(D0)}
    reader = tf.train.load_checkpoint(prefix)
    num_slots = 0
    for name, array in whole_match(source, D0).items():
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


# Writing


def test_a_written_checkpoint_is_what_the_reference_programs_look_for(tmp_path):
    prefix = str(tmp_path / "model")
    arrays = {"fpn_cells/a": np.ones(3), "fpn_cells/b": np.float32(2)}
    write_tf1_checkpoint(prefix, arrays, {"fpn_cells/a": np.zeros(3)}, global_step=9)
    assert tf.train.latest_checkpoint(str(tmp_path)) == prefix
    names = [name for name, _ in tf.train.list_variables(prefix)]
    values = {name: tf.train.load_variable(prefix, name) for name in names}
    assert {name: value.tolist() for name, value in values.items()} == {
        "fpn_cells/a": [1, 1, 1],
        "fpn_cells/a/ExponentialMovingAverage": [0, 0, 0],
        "fpn_cells/b": 2,
        "fpn_cells/b/ExponentialMovingAverage": 2,  # as the raw value
        "global_step": 9,
    }
    assert values["global_step"].dtype == np.int64
    assert values["fpn_cells/a"].dtype == np.float32


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


DATA = "model.data-00000-of-00001"


@pytest.mark.parametrize("name", [DATA, "model.index"])
def test_damaged_files_are_told_with_the_cure(copy, name):
    (copy / name).write_bytes((copy / name).read_bytes()[:100])
    message = r"'.*copy/model' is damaged or incomplete.*needs '.*model\.index'.*again"
    with pytest.raises(ValueError, match=message):
        read_tensorflow_checkpoint(copy / "model")


def test_arrays_of_the_segmentation_head_have_their_names():
    config = EfficientDetConfig(heads=("object_detection", "segmentation"))
    names = {
        array.name: OBJECT_GRAPH.name_of(array)
        for array in network_arrays(config)
        if array.is_segmentation
    }
    for ours, theirs in (
        ("conv2d_transpose_2/kernel", "con2d_ts/2/kernel"),
        ("bn_3/moving_mean", "con2d_t_bns/3/moving_mean"),
        ("conv2d_transpose_4/bias", "head_transpose/bias"),
    ):
        assert names[f"segmentation_head/{ours}"] == f"seg_head/{theirs}"
    assert len(set(names.values())) == 22
