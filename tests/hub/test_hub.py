"""TF-Hub, both ways. The modules are made without this package, or by it."""

import pathlib
import shutil
import types

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("TF-Hub modules are TensorFlow's", allow_module_level=True)

import contextlib
import http.server
import io
import json
import tarfile
import zipfile

import tensorflow as tf
from support import programs
from support.remote import Quiet, served
from support.tiny import LITE0, tiny_model, values

from effdet_keras.errors import EffDetError
from effdet_keras.hub.export import network_features
from effdet_keras.hub.from_hub import HubDetector, _matching_config
from effdet_keras.hub.module import HubFeatures, open_hub_module
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.weights.archive import load_archive, write_archive
from effdet_keras.weights.network_arrays import (
    TF1,
    WeightSource,
    network_arrays,
    tf1_name,
)

IMAGES = tf.TensorSpec((None, None, None, 3), tf.float32, name="images")


class SmallModule(tf.Module):
    """A module in google/automl's format: one convolution, one batch norm, pools."""

    def __init__(self, num_levels=3, box_scale=0.5):
        super().__init__()
        self.num_levels, self.box_scale = num_levels, box_scale
        random = np.random.default_rng(0)

        def variable(name, value, trainable=True):
            value = tf.constant(value, tf.float32)
            return tf.Variable(value, trainable=trainable, name=name)

        kernel = random.normal(size=(8, 8, 3, 16)) / 10
        self.kernel = variable("stem/conv/kernel", kernel)
        self.gamma = variable("stem/bn/gamma", np.ones(16))
        self.beta = variable("stem/bn/beta", np.zeros(16))
        self.mean = variable("stem/bn/moving_mean", np.zeros(16), False)
        self.variance = variable("stem/bn/moving_variance", np.ones(16), False)
        self.steps = variable("steps", 0.0, False)  # which no one may train

    @tf.function
    def __call__(self, images, training=False):
        x = tf.nn.conv2d(images, self.kernel, 8, "SAME")
        mean, variance = self.mean, self.variance
        if training:
            mean, variance = tf.nn.moments(x, (0, 1, 2))
            self.mean.assign(0.9 * self.mean + 0.1 * mean)
            self.variance.assign(0.9 * self.variance + 0.1 * variance)
            self.steps.assign_add(1.0)
        x = tf.nn.batch_normalization(x, mean, variance, self.beta, self.gamma, 1e-3)
        levels = [tf.nn.relu(x)]
        for _ in range(self.num_levels - 1):
            levels.append(tf.nn.max_pool2d(levels[-1], 2, 2, "SAME"))
        return levels, [self.box_scale * x for x in levels]


def save_small_module(folder, **arguments):
    module = SmallModule(**arguments)
    return save_callable(module, folder)


def save_callable(module, folder, images=IMAGES):
    """Saves a module for both values of `training`."""
    for training in (True, False):
        module.__call__.get_concrete_function(images, training=training)
    tf.saved_model.save(module, str(folder))
    return str(folder)


def save_function(function, folder, **variables):
    """Saves a module that computes a Python function of (images, training)."""
    module = tf.train.Checkpoint(**variables)
    module.__call__ = tf.function(function)
    return save_callable(module, folder)


def save_detector(folder, outputs, shape=(1, None, None, 3), dtype=tf.uint8):
    """Saves a module with one signature: `outputs`, computed from the images."""
    module = tf.train.Checkpoint()
    module.detect = tf.function(
        outputs, input_signature=[tf.TensorSpec(shape, dtype, name="input_tensor")]
    )
    signatures = {"serving_default": module.detect}
    tf.saved_model.save(module, str(folder), signatures=signatures)
    return str(folder)


@contextlib.contextmanager
def serving(modules):
    """An http server as tfhub.dev is one: gives folders, compressed, by name.

    Yields its address, and a list that every request is added to.
    """
    requests = []

    class Handler(Quiet, http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            name, _, query = self.path.lstrip("/").partition("?")
            if name not in modules or query != "tf-hub-format=compressed":
                self.send_error(404)
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(_compressed(modules[name]))

    with served(Handler) as server:
        yield server.address, requests


def _compressed(content):
    if isinstance(content, bytes):
        return content
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        archive.add(content, arcname="./")
    return buffer.getvalue()


pytestmark = pytest.mark.tensorflow
SMALL = {"image_size": 64, "max_level": 5}
NAMES = ("cat", "dog", "bird")


def batches(count=4):
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (count, 64, 64, 3)).astype("float32")
    boxes = np.tile(np.float32([[8, 8, 40, 48], [30, 4, 60, 30]]), (count, 1, 1))
    labels = np.tile(np.int32([0, 2]), (count, 1))
    return tf.data.Dataset.from_tensors((images, {"boxes": boxes, "labels": labels}))


def train(model, steps=1):
    data = batches().repeat(steps)
    return model.fit(data, verbose=0).history["loss"][-1]


def all_equal(ours, theirs):
    return all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def none_equal(ours, theirs):
    return not any(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def flat(features):
    return [np.asarray(x) for levels in features for x in levels]


def normalised(count=1):
    return np.random.default_rng(2).normal(size=(count, 64, 64, 3)).astype("float32")


@pytest.fixture(scope="session")
def small_module(tmp_path_factory):
    return save_small_module(tmp_path_factory.mktemp("hub") / "small")


@pytest.fixture(scope="session")
def our_model():
    """Without stochastic depth, so that two graphs of it can be compared."""
    config = tiny_model(backbone=LITE0).config.replace(backbone_survival_prob=1.0)
    return EfficientDet(config)


@pytest.fixture(scope="session")
def our_module(our_model, tmp_path_factory):
    path = tmp_path_factory.mktemp("hub") / "ours"
    our_model.export_hub_module(path)
    return str(path)


def from_small(module, **arguments):
    arguments = {"class_names": NAMES, "verbose": 0, **SMALL, **arguments}
    model = EfficientDet.from_hub(module, **arguments)
    if not isinstance(model, HubDetector):
        model.compile(keras.optimizers.Adam(1e-3))
    return model


# A module whose graph is kept


@pytest.mark.smoke
def test_the_layer_has_the_modules_own_variables(small_module):
    model = from_small(small_module)
    loaded = model.features.module.loaded
    paths = {v.path for v in model.features.weights}
    assert "stem/conv/kernel" in paths and "steps" in paths
    trainable = {v.path for v in model.features.trainable_variables}
    assert trainable == {"stem/conv/kernel", "stem/bn/gamma", "stem/bn/beta"}
    before = values([loaded.kernel, loaded.gamma, loaded.mean, loaded.variance])
    train(model)
    after = values([loaded.kernel, loaded.gamma, loaded.mean, loaded.variance])
    assert none_equal(before, after)
    assert float(loaded.steps) == 1.0


@pytest.mark.parametrize("ending", [".keras", ".weights.h5"])
def test_saves_and_loads_exactly(small_module, ending, tmp_path):
    model = from_small(small_module)
    train(model)
    path = tmp_path / f"model{ending}"
    if ending == ".keras":
        model.save(path)
        other = keras.saving.load_model(path)
    else:
        model.save_weights(path)
        other = from_small(small_module)
        other.load_weights(path)
    images = np.clip(128 + 50 * normalised(), 0, 255)
    ours, theirs = model.predict(images, verbose=0), other.predict(images, verbose=0)
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert all_equal(values(model.weights), values(other.weights))
    assert all_equal(values(model.averages.variables), values(other.averages.variables))


def test_a_frozen_model_resumes_frozen(small_module, tmp_path):
    model = from_small(small_module, trainable=False)
    outputs = model(np.zeros((2, 64, 64, 3), "uint8"))
    assert outputs["class_logits"].shape == (2, 756, 3)
    write_archive(model, tmp_path / "last.keras")
    resumed = load_archive(tmp_path, resume=True)
    before = values(resumed.features.weights)
    new = values(resumed.trainable_variables)
    assert {v.path.split("/")[1] for v in resumed.trainable_variables} == {
        "class-predict",
        "box-predict",
    }
    train(resumed)
    assert all_equal(before, values(resumed.features.weights))
    assert none_equal(new, values(resumed.trainable_variables))
    resumed.unfreeze()
    train(resumed)
    assert none_equal(before, values(resumed.features.weights))


def test_what_cannot_be_is_said(small_module, tmp_path):
    model = from_small(small_module)
    with pytest.raises(ValueError, match="graph of a TF-Hub module.*load_weights"):
        model.load_pretrained("coco")
    with pytest.raises(ValueError, match="graph of a TF-Hub module"):
        model.export_checkpoint(tmp_path / "x", format="automl-tf1")
    with pytest.raises(ValueError, match="num_classes.*class_names"):
        EfficientDet.from_hub(small_module, **SMALL)


def test_a_module_of_keras_2(tmp_path):
    tf_keras = pytest.importorskip("tf_keras")

    class Network(tf_keras.Model):
        def __init__(self):
            super().__init__(name="network")
            self.conv = tf_keras.layers.Conv2D(16, 8, strides=8, name="conv")
            self.bn = tf_keras.layers.BatchNormalization(name="bn")

        def call(self, images, training=False):
            x = self.bn(self.conv(images), training=training)
            levels = [x, x[:, ::2, ::2], x[:, ::4, ::4]]
            return levels, [2.0 * x for x in levels]

    network = Network()
    network(np.zeros((1, 64, 64, 3), "float32"), training=True)
    network.compute_output_shape((None, 64, 64, 3))
    tf.saved_model.save(network, str(tmp_path / "keras2"))
    model = from_small(str(tmp_path / "keras2"))
    loaded = tf.saved_model.load(str(tmp_path / "keras2"))
    expected = flat(loaded(normalised(), training=False))
    assert all_equal(expected, flat(network_features(model, normalised())))
    before = values(model.features.weights)
    train(model)
    assert len(before) == 6
    assert none_equal(before, values(model.features.weights))


# Our own network, out and in


def test_a_network_comes_back_as_itself(our_model, our_module, capsys):
    model = EfficientDet.from_hub(our_module, class_names=NAMES)
    said = "328 weights of efficientdet-lite0, in this package's network"
    assert said in capsys.readouterr().out
    assert model.features is None and model.config == our_model.config
    pairs = zip(our_model.weights, model.weights, strict=True)
    below = [pair for pair in pairs if "-predict/" not in pair[0].path]
    assert all(np.array_equal(ours, theirs) for ours, theirs in below)
    ours, theirs = (network_features(m, normalised()) for m in (our_model, model))
    assert all_equal(flat(ours), flat(theirs))


def arrays_of(name):
    """What a module of a published model has, of zeros, without the last layers."""
    config = EfficientDetConfig.from_name(name)
    arrays = [a for a in network_arrays(config) if "-predict/" not in a.name]
    return {a.name: np.broadcast_to(np.float32(0), a.shape) for a in arrays}


@pytest.mark.parametrize("name", ["efficientdet-d0", "efficientdet-lite2"])
def test_published_networks_are_known_by_their_variables(name):
    module = types.SimpleNamespace(notes=None, handle="somewhere")
    source = WeightSource("somewhere", "", TF1, arrays_of(name))
    found = _matching_config(module, source, None, {"num_classes": 4})
    assert (found.name, found.num_classes) == (name, 4)
    del source.arrays["box_net/box-2-bn-3/beta"]
    assert _matching_config(module, source, None, {"num_classes": 4}) is None
    # The weights of these two are the same.
    source = WeightSource("somewhere", "", TF1, arrays_of("efficientdet-d7"))
    with pytest.raises(ValueError, match="efficientdet-d6 and efficientdet-d7"):
        _matching_config(module, source, None, {})
    found = _matching_config(module, source, "efficientdet-d7", {})
    assert found.name == "efficientdet-d7"


def test_a_network_is_known_in_half_precision(our_module, our_model, recwarn):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = EfficientDet.from_hub(our_module, num_classes=2, verbose=0)
    finally:
        keras.config.set_dtype_policy("float32")
    assert not [w for w in recwarn if "something else" in str(w.message)]
    assert model.features is None
    assert model.pretrained == "detector of other classes"
    backbones = [m.get_layer(m.config.backbone) for m in (model, our_model)]
    assert backbones[0].compute_dtype == "bfloat16"
    for one, other in zip(*(backbone.weights for backbone in backbones), strict=True):
        assert np.array_equal(one, other), one.path


@pytest.mark.slow
def test_another_size_takes_the_same_weights(our_module, our_model):
    size = {"image_size": (96, 64)}
    model = EfficientDet.from_hub(our_module, num_classes=2, verbose=0, **size)
    assert model.config.image_size == (96, 64) and model.features is None
    stem = [m.get_layer(m.config.backbone).weights[0] for m in (model, our_model)]
    assert np.array_equal(*stem)


@pytest.mark.slow
def test_hub_and_own_network_train_alike(our_module, our_model):
    own = EfficientDet.from_hub(our_module, num_classes=3, verbose=0)
    module = open_hub_module(our_module)
    hub = EfficientDet(own.config, features=HubFeatures(module))
    by_path = {v.path: v for v in own.weights}
    for variable in hub.weights:
        if "-predict/" in variable.path:
            variable.assign(by_path[variable.path])
    before = {v.path: np.array(v) for v in own.weights}
    losses = []
    for model in (own, hub):
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), recipe="reference")
        losses.append([train(model) for _ in range(3)])
    # The two graphs round in another order, which also depends on the load of the
    # machine; an error in a gradient would be as large as the step itself.
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)
    theirs = {v.name.split(":")[0]: v for v in module.variables}
    for variable in own.weights:
        ours = np.array(variable)
        if "-predict/" in variable.path:
            other = next(v for v in hub.weights if v.path == variable.path)
        else:
            other = theirs[tf1_name(variable)]
        step = np.abs(ours - before[variable.path]).max()
        limit = 0.05 * step + 1e-6 * max(1.0, np.abs(ours).max())
        assert np.abs(ours - np.array(other)).max() < limit, variable.path


def test_the_export_is_a_module_without_this_package(our_module, our_model):
    code = (
        "import sys; sys.modules['effdet_keras'] = None\n"
        "import numpy as np, tensorflow as tf, tensorflow_hub as hub\n"
        "layer = hub.KerasLayer(sys.argv[1], trainable=True)\n"
        "images = np.random.default_rng(2).normal(size=(1, 64, 64, 3))\n"
        "images = images.astype('float32')\n"
        "features = layer(images, training=False)\n"
        "np.savez(sys.argv[2], *[x for levels in features for x in levels])\n"
        "statistic = next(v for v in layer.variables if 'moving_mean' in v.name)\n"
        "before = statistic.numpy()\n"
        "with tf.GradientTape() as tape:\n"
        "    features = layer(images, training=True)\n"
        "    loss = sum(tf.reduce_sum(x) for levels in features for x in levels)\n"
        "gradients = tape.gradient(loss, layer.trainable_variables)\n"
        "print(len(layer.variables), len(gradients), None in gradients,"
        " (statistic.numpy() != before).any())\n"
    )
    out = pathlib.Path(our_module).with_name("features.npz")
    said = programs.run_alone("-c", code, our_module, out)
    assert said.split()[-4:] == ["337", "202", "False", "True"]
    expected = flat(network_features(our_model, normalised()))
    for ours, theirs in zip(expected, np.load(out).values(), strict=True):
        # Graphs merge batch norms into convolutions: float32 rounding.
        assert np.abs(theirs - ours).max() < 1e-5 * np.abs(ours).max()


def test_a_failed_export_leaves_nothing(small_module, tmp_path, monkeypatch):
    model = from_small(small_module)

    def fail(module, path):
        pathlib.Path(path, "half").write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    model.freeze("stem/conv")
    with pytest.raises(OSError, match="disk full"):
        model.export_hub_module(tmp_path / "module")
    assert list(tmp_path.iterdir()) == []
    assert not model.averages.is_swapped
    assert "stem/conv/kernel" not in {v.path for v in model.trainable_variables}
    (tmp_path / "there").mkdir()
    with pytest.raises(FileExistsError, match="is not overwritten"):
        model.export_hub_module(tmp_path / "there")


@pytest.mark.slow
def test_names_alone_are_not_trusted(our_module, tmp_path):
    loaded = tf.saved_model.load(our_module)
    module = tf.train.Checkpoint(inner=loaded)
    module.variables = list(loaded.variables)
    module.trainable_variables = list(loaded.trainable_variables)

    def doubled(images, training=False):
        found = loaded(images, training=training)
        return tuple([2.0 * x for x in levels] for levels in found)

    module.__call__ = tf.function(doubled)
    spec = tf.TensorSpec((None, 64, 64, 3), tf.float32, name="images")
    path = save_callable(module, tmp_path / "doubled", spec)
    shutil.copytree(f"{our_module}/assets.extra", f"{path}/assets.extra")
    with pytest.warns(UserWarning, match="does not compute the same"):
        model = EfficientDet.from_hub(path, num_classes=3, verbose=0)
    assert model.features is not None
    assert all_equal(
        flat(doubled(normalised())), flat(network_features(model, normalised()))
    )


# Over http


def test_fetches_compressed_and_once(small_module, tmp_path, monkeypatch):
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "cache"))
    with serving({"small/1": small_module}) as (address, requests):
        model = from_small(f"{address}/small/1")
        from_small(f"{address}/small/1")
    assert requests == ["/small/1?tf-hub-format=compressed"]
    train(model)
    path = tmp_path / "model.keras"
    model.save(path)
    other = keras.saving.load_model(path)  # the server is gone, the cache is there
    assert all_equal(values(model.weights), values(other.weights))
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(FileNotFoundError, match=f"{address}/small/1.*hub.resolve"):
        keras.saving.load_model(path)


def test_a_dead_address_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path))
    with serving({"page/1": b"<html>"}) as (address, _):
        with pytest.raises(OSError, match=f"{address}/gone/1.*404.*tar.gz"):
            from_small(f"{address}/gone/1")
        with pytest.raises(OSError, match=f"{address}/page/1.*valid module"):
            from_small(f"{address}/page/1")
    with pytest.raises(OSError, match=f"{address}/small/1.*refused"):
        from_small(f"{address}/small/1")


def test_a_module_that_is_gone_is_named(small_module, tmp_path):
    shutil.copytree(small_module, tmp_path / "module")
    model = from_small(str(tmp_path / "module"))
    model.save(tmp_path / "model.keras")
    shutil.rmtree(tmp_path / "module")
    with pytest.raises(FileNotFoundError, match="module.*from_hub.*load_weights"):
        keras.saving.load_model(tmp_path / "model.keras")
    moved = from_small(small_module)
    moved.load_weights(tmp_path / "model.keras")  # the cure that the error names
    assert all_equal(values(model.weights), values(moved.weights))


@pytest.mark.parametrize("is_of_former_version", [False, True])
def test_another_module_of_the_same_shapes_is_refused(
    small_module, tmp_path, is_of_former_version
):
    place, path = tmp_path / "module", tmp_path / "model.keras"
    shutil.copytree(small_module, place)
    model = from_small(str(place))
    model.save(path)
    if is_of_former_version:
        rename_in_config(path, "graph_digest", "fingerprint")
    keras.saving.load_model(path)
    shutil.rmtree(place)
    save_small_module(place, box_scale=0.25)  # its variables have the same shapes
    with pytest.raises(
        ValueError, match="module.*is not the one.*its graph is different"
    ):
        keras.saving.load_model(path)
    shutil.rmtree(place)
    shutil.copytree(small_module, place)
    assert all_equal(
        values(model.weights), values(keras.saving.load_model(path).weights)
    )


def test_other_weights_of_the_same_graph_are_no_other_module(small_module, tmp_path):
    place = tmp_path / "module"
    shutil.copytree(small_module, place)
    model = from_small(str(place))
    train(model)
    model.save(tmp_path / "model.keras")
    other = keras.saving.load_model(tmp_path / "model.keras")
    assert all_equal(values(model.weights), values(other.weights))


def test_a_file_without_a_digest_still_loads(small_module, tmp_path):
    model, path = from_small(small_module), tmp_path / "model.keras"
    model.save(path)
    rename_in_config(path, "graph_digest", None)
    keras.saving.load_model(path)


def rename_in_config(path, name, new_name):
    """Renames an entry of the hub module's config in a `.keras` file, or drops it."""
    with zipfile.ZipFile(path) as archive:
        entries = {n: archive.read(n) for n in archive.namelist()}

    def renamed(value):
        if isinstance(value, list):
            return [renamed(item) for item in value]
        if not isinstance(value, dict):
            return value
        names = {key: new_name if key == name else key for key in value}
        return {names[k]: renamed(v) for k, v in value.items() if names[k] is not None}

    assert name in entries["config.json"].decode()
    config = renamed(json.loads(entries["config.json"]))
    entries["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for entry, content in entries.items():
            archive.writestr(entry, content)


# Modules of another format


def test_what_is_no_module_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no TF-Hub module.*nowhere"):
        from_small("nowhere")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "saved_model.pb").write_bytes(b"no protocol buffer")
    for folder in ("empty", "broken"):
        message = f"TensorFlow cannot load .*{folder}.*as a SavedModel.*again"
        with pytest.raises(EffDetError, match=message):
            from_small(tmp_path / folder)


def test_a_module_without_its_variables_is_named(small_module, tmp_path):
    shutil.copytree(small_module, tmp_path / "module")
    shutil.rmtree(tmp_path / "module" / "variables")
    with pytest.raises(EffDetError, match="as a SavedModel.*'variables'"):
        from_small(tmp_path / "module")


def test_a_wrong_number_of_levels_is_named(small_module, tmp_path):
    four = save_small_module(tmp_path / "four", num_levels=4)
    with pytest.raises(ValueError, match=r"\(1, 1\)\] for .*levels 3 to 5"):
        from_small(four)
    assert from_small(four, max_level=6).config.num_levels == 4


@pytest.mark.parametrize(
    "function", [lambda images, training: images, lambda images, training: [images] * 3]
)
def test_another_result_is_named(function, tmp_path):
    path = save_function(function, tmp_path / "module")
    with pytest.raises(ValueError, match=r"returns .*1, 64, 64, 3"):
        from_small(path)


def test_another_signature_is_named(tmp_path):
    path = save_detector(tmp_path / "embedding", lambda x: {"vector": x[:, 0, 0]})
    with pytest.raises(ValueError, match="has another format.*callable with"):
        from_small(path)


# Whole detectors


BOXES = [[[0.1, 0.2, 0.5, 1.0], [0, 0, 1, 1.0]]]
SCORES, CLASSES = [[0.9, 0.2]], [[2.0, 1.0]]  # classes from 1


def published(images):
    """The Object Detection API's names: boxes as fractions."""
    return {
        "detection_boxes": tf.constant(BOXES),
        "detection_scores": tf.constant(SCORES),
        "detection_classes": tf.constant(CLASSES),
        "num_detections": 2.0 + 0 * tf.cast(images[:, 0, 0, 0], "float32"),
    }


def inspected(images):
    """The names of google/automl's inspector: boxes in pixels of the input."""
    size = tf.cast(tf.shape(images)[1:3], tf.float32)
    boxes = tf.constant(BOXES) * tf.tile(size, [2])
    found = (boxes, tf.constant(SCORES), tf.constant(CLASSES), tf.constant([2]))
    return {f"output_{i}": value for i, value in enumerate(found)}


@pytest.mark.parametrize("outputs", [published, inspected])
@pytest.mark.parametrize(
    "input_spec",
    [{}, {"shape": (1, 80, 80, 3), "dtype": tf.float32}],
    ids=["any", "fixed"],
)
def test_a_detector_detects(outputs, input_spec, tmp_path):
    path = save_detector(tmp_path / "detector", outputs, **input_spec)
    model = EfficientDet.from_hub(path, class_names=NAMES, verbose=0)
    assert isinstance(model, HubDetector)
    image = np.zeros((40, 20, 3), "uint8")
    found = model.detect(image)
    assert found.names == ("dog",) and len(found) == 1
    # At 80 x 80 the image is letterboxed: 40 pixels are a fraction of 0.5 of it.
    width = 20 if not input_spec else 40
    # The image is 20 wide: there the box ends.
    np.testing.assert_allclose(found.boxes, [[4, 0.2 * width, 20, 20]], rtol=1e-5)
    assert [len(each) for each in model.detect([image] * 2, 0.1)] == [2, 2]
    assert model.detect(image, 0.1, classes=[model.class_names[0]]).labels.tolist() == [
        0
    ]
    assert len(model.detect(image, classes=[0])) == 0
    with pytest.raises(ValueError, match="`classes` must be among the class names"):
        model.detect(image, classes=["unicorn"])


def decoded(file):
    return tf.io.decode_image(file, expand_animations=False)


def from_example(example):
    features = {"image/encoded": tf.io.FixedLenFeature([], tf.string)}
    return decoded(tf.io.parse_single_example(example, features)["image/encoded"])


@pytest.mark.parametrize("decode", [decoded, from_example])
def test_a_detector_that_takes_encoded_images(decode, tmp_path):
    """Exports of the Object Detection API for files, and for `tf.train.Example`s."""

    def detect(strings):
        images = tf.map_fn(decode, strings, fn_output_signature=tf.uint8)
        score = tf.cast(images[:1, 30, 10, :2], tf.float32) / 255  # pixels arrive whole
        return {**published(images), "detection_scores": score}

    path = save_detector(tmp_path / "detector", detect, shape=[None], dtype=tf.string)
    model = EfficientDet.from_hub(path, class_names=NAMES, verbose=0)
    image = np.zeros((40, 20, 3), "uint8")
    image[30, 10] = 200, 100, 0
    found = model.detect(image)
    np.testing.assert_allclose(found.scores, [200 / 255, 100 / 255], rtol=1e-6)
    np.testing.assert_allclose(found.boxes[0], [4, 4, 20, 20], rtol=1e-5)


@pytest.mark.parametrize("shape, dtype", [([None, 4], tf.float32), ([], tf.string)])
def test_a_detector_of_another_input_is_refused(shape, dtype, tmp_path):
    def detect(inputs):
        return published(tf.zeros((1, 8, 8, 3)))

    path = save_detector(tmp_path / "detector", detect, shape=shape, dtype=dtype)
    with pytest.raises(ValueError, match="Expected: one tensor, either of images"):
        EfficientDet.from_hub(path, verbose=0)
