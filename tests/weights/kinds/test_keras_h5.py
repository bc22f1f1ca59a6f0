"""Keras 2's `.h5` files: google/automl's network, and Keras Applications'."""

import re

import h5py
import keras
import numpy as np
import pytest
from keras import ops
from keras.src.legacy.saving import legacy_h5_format  # true files of Keras 2's format
from support import automl_files
from support.weights import whole_match

from effdet_keras.network.backbone import EfficientNet
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.weights.identify import identify, match_arrays
from effdet_keras.weights.kinds.keras_h5 import APPLICATIONS, read_keras2_h5
from effdet_keras.weights.network_arrays import TF1, tf1_name

D0 = EfficientDetConfig.from_name("efficientdet-d0")
V2 = ("B1", "B2", "B3", "S", "M", "L")


def assert_whole(source, refweights):
    for name, array in whole_match(source, D0).items():
        expected = refweights.value(name, array.shape)
        np.testing.assert_array_equal(array, expected, err_msg=name)


# google/automl's network


@pytest.mark.parametrize("group", ["", "model_weights/"])
def test_every_array_of_the_network_is_read(tmp_path, golden_path, refweights, group):
    path = automl_files.write_h5(tmp_path / "d0.h5", golden_path, refweights, group)
    with h5py.File(path, "a") as file:
        file["optimizer_weights/SGD/iter:0"] = 3
    source = read_keras2_h5(path)
    assert_whole(source, refweights)
    assert (source.scheme, source.num_averages) == (TF1, 0)
    assert source.others == ("optimizer_weights/SGD/iter:0",)
    assert str(identify(source)) == "efficientdet-d0, 90 classes"


def test_the_reference_file_is_read(checkpoint_path, refweights):
    assert_whole(read_keras2_h5(checkpoint_path("ckpt_d0.h5")), refweights)


def test_the_second_model_of_a_process_is_read(tmp_path):
    path = tmp_path / "d0.h5"
    with h5py.File(path, "w") as file:
        backbone = "efficientnet-b0/efficientnet-b0"
        file[f"{backbone}/stem_1/conv2d_1/kernel:0"] = np.ones(3)
        file[f"{backbone}/stem_1/tpu_batch_normalization_1/beta:0"] = np.ones(3)
        file[f"{backbone}/blocks_1/conv2d_1/kernel:0"] = np.ones(3)
    assert set(read_keras2_h5(path).arrays) == {
        "efficientnet-b0/stem/conv2d/kernel",
        "efficientnet-b0/stem/tpu_batch_normalization/beta",
        "efficientnet-b0/blocks_1/conv2d_1/kernel",
    }


# Keras Applications' network


def write_applications(path, model, group=None):
    with h5py.File(path, "w") as file:
        target = file.create_group(group) if group else file
        legacy_h5_format.save_weights_to_hdf5_group(target, model)
    return str(path)


def randomize(model):
    """Weights that keep activations at a sane scale, none equal to another."""
    rng = np.random.default_rng(5)
    for variable in model.weights:
        value = ops.convert_to_numpy(variable)
        if variable.path.startswith("normalization"):
            continue
        if variable.name in ("gamma", "moving_variance"):
            value = rng.uniform(0.5, 1.5, value.shape)
        elif variable.name in ("beta", "bias", "moving_mean"):
            value = 0.1 * rng.standard_normal(value.shape)
        variable.assign(value)


def whole_backbone(source, config):
    match = match_arrays(source, config)
    assert not any(array.is_backbone for array in match.missing)
    assert match.mismatched == {}
    # The classifier's part, which no detector has.
    assert {name.split("/")[0] for name in match.left_over} == {"top_conv", "top_bn"}
    return match


def assert_features_equal(source, config, applications, ends, scale=1.0):
    """The backbone with the weights of a file gives what the layers `ends` give."""
    match = whole_backbone(source, config)
    variant = config.backbone
    backbone = EfficientNet(variant, min_level=2, name=variant)
    images = np.random.default_rng(0).uniform(0, scale, (2, 64, 96, 3))
    backbone.build(images.shape)
    for variable in backbone.weights:
        path = variable.path
        name = path if path.startswith("efficientnet") else f"{variant}/{path}"
        variable.assign(match.found[tf1_name(type("Named", (), {"path": name}))])
    outputs = [applications.get_layer(name).output for name in ends]
    images = images.astype("float32")
    expected = keras.Model(applications.input, outputs)(images)
    for mine, theirs in zip(backbone(images / scale), expected, strict=True):
        theirs = ops.convert_to_numpy(theirs)
        size = np.abs(theirs).max()
        np.testing.assert_allclose(
            ops.convert_to_numpy(mine) / size, theirs / size, rtol=0, atol=1e-5
        )


@pytest.fixture(scope="module")
def applications():
    model = keras.applications.EfficientNetB0(
        include_top=False, weights=None, input_shape=(64, 96, 3)
    )
    randomize(model)
    return model


@pytest.mark.slow_elsewhere
def test_the_backbone_gives_the_outputs_of_keras_applications_v2(tmp_path):
    applications = keras.applications.EfficientNetV2B0(
        include_top=False,
        weights=None,
        input_shape=(64, 96, 3),
        include_preprocessing=False,
    )
    randomize(applications)
    source = read_keras2_h5(write_applications(tmp_path / "v2.h5", applications))
    assert source.kind == "Keras Applications EfficientNetV2 `.h5`"
    config = D0.replace(backbone="efficientnetv2-b0")
    assert config.replace(**source.config) == config
    ends = ("block2b_add", "block3b_add", "block5e_add", "block6h_add")
    assert_features_equal(source, config, applications, ends)


def test_the_backbone_gives_the_outputs_of_keras_applications(tmp_path, applications):
    source = read_keras2_h5(write_applications(tmp_path / "b0.h5", applications))
    assert source.scheme == APPLICATIONS
    assert str(identify(source)).startswith("the backbone of efficientdet-d0")
    ends = ("block2b_add", "block3b_add", "block5c_add", "block7a_project_bn")
    # Without its weights, its normalisation does no more than this.
    assert_features_equal(source, D0, applications, ends, scale=255.0)
    layers = {name.split("/")[0] for name in source.others}
    # Keras counts the layers of a process.
    assert {re.sub(r"_\d+$", "", layer) for layer in layers} == {"normalization"}
    assert not any(name.startswith("normalization") for name in source.arrays)


def test_keras_2_names_of_depthwise_kernels_and_whole_models_are_read(
    tmp_path, applications
):
    first = write_applications(tmp_path / "b0.h5", applications)
    second = write_applications(tmp_path / "whole.h5", applications, "model_weights")
    with h5py.File(second, "a") as file:
        file["optimizer_weights/iter:0"] = 3
        weights = file["model_weights"]
        names = []
        weights.visititems(lambda name, item: names.append((name, item)))
        for name, item in names:
            if isinstance(item, h5py.Dataset):
                renamed = name.replace("_dwconv/kernel", "_dwconv/depthwise_kernel")
                weights.move(name, f"{renamed}:0")
    first, second = read_keras2_h5(first), read_keras2_h5(second)
    assert second.others[0] == "optimizer_weights/iter:0"
    assert set(first.arrays) == set(second.arrays)
    for name, array in first.arrays.items():
        np.testing.assert_array_equal(array, second.arrays[name])


def write_names(path, model):
    """A file with the names and shapes of a model's weights, all of them zeros."""
    with h5py.File(path, "w") as file:
        for variable in model.weights:
            layer = variable.path.split("/")[0]
            name, shape = f"{layer}/{variable.path}:0", tuple(variable.shape)
            # Chunks that repeat themselves: kilobytes on the disk.
            packed = {"compression": 1} if shape else {}
            file.create_dataset(name, data=np.zeros(shape, "float32"), **packed)
    return path


@pytest.mark.slow_elsewhere  # names are the same on every backend
@pytest.mark.parametrize(
    "variant, backbone",
    [
        ("B3", "efficientnet-b3"),
        *(
            pytest.param(variant, backbone, marks=pytest.mark.slow)
            for variant, backbone in [
                ("B7", "efficientnet-b7"),
                *((f"V2{size}", f"efficientnetv2-{size.lower()}") for size in V2),
            ]
        ),
    ],
)
def test_larger_backbones_are_found_whole(tmp_path, variant, backbone):
    # The list of names is Keras Applications' own; zeros stand for the arrays.
    build = getattr(keras.applications, f"EfficientNet{variant}")
    model = build(include_top=False, weights=None, input_shape=(32, 32, 3))
    path = write_names(tmp_path / "large.h5", model)
    whole_backbone(read_keras2_h5(path), D0.replace(backbone=backbone))


# What is no such file


def write(path, **datasets):
    with h5py.File(path, "w") as file:
        for name, value in datasets.items():
            file[name.replace("__", "/")] = value
    return path


@pytest.mark.parametrize("name", ["dense__dense__kernel:0", "layers__conv2d__vars__0"])
def test_other_networks_are_refused(tmp_path, name):
    path = write(tmp_path / "x.h5", **{name: np.ones(2)})
    with pytest.raises(
        ValueError, match=r"x\.h5' contains the weights of another network"
    ):
        read_keras2_h5(path)


@pytest.mark.parametrize("content", [b"<html>404</html>", b"\x89HDF\r\n\x1a\n"])
def test_damage_is_told(tmp_path, content):
    (tmp_path / "x.h5").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.h5' is damaged, or not an HDF5 file"):
        read_keras2_h5(tmp_path / "x.h5")


def test_a_cut_file_is_an_error(tmp_path):
    names = [f"fpn_cells__fpn_cells__cell_0__x{i}:0" for i in range(12)]
    path = write(tmp_path / "x.h5", **{name: np.ones(9) for name in names})
    whole = path.read_bytes()
    for size in range(0, len(whole), max(1, len(whole) // 20)):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"x\.h5"):
            read_keras2_h5(path)
