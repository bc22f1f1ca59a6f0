"""`EfficientDet` as its users meet it: build, train, predict, detect, save."""

import concurrent.futures
import errno
import functools
import json

import keras
import numpy as np
import pytest
from keras import ops
from support.arrays import assert_equal
from support.schedules import schedule_of
from support.tiny import EAGER, tiny_model, values
from support.tiny import batch as tiny_batch

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.train import compile_model

# A row of padding beside each box, and pixels as files have them.
batch = functools.partial(tiny_batch, padding=1, dtype="uint8")


@pytest.fixture(scope="module")
def trained():
    """A model after two steps of the reference's recipe, and its history."""
    keras.utils.set_random_seed(1)
    model = tiny_model()
    model.compile(recipe="reference")
    images, truth = batch(4)
    history = model.fit(images, truth, batch_size=2, epochs=2, verbose=0)
    return model, history.history


# Building


@pytest.mark.slow_elsewhere
def test_preset_takes_names_counts_and_overrides():
    model = EfficientDet.from_preset(
        "efficientdet-lite0",
        class_names=["a", "b"],
        category_ids=[3, 7],
        image_size=(64, 96),
        max_level=5,
    )
    assert model.name == "efficientdet-lite0"
    assert (model.num_classes, model.class_names) == (2, ("a", "b"))
    assert model.category_ids == (3, 7)
    assert model.input_shape == (None, 64, 96, 3)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"name": "efficientdet-d9"}, "no model with this name.*efficientdet-d9"),
        ({"name": "EfficientDet-D0"}, "Did you mean 'efficientdet-d0'"),
        ({"name": "x.keras"}, r"EfficientDet.from_archive\(path\)"),
        ({"num_classes": 3, "class_names": ["a"]}, "each of the 3 classes.*entries=1"),
        ({"class_names": ["cat", "cat"]}, "must differ from each other.*with 'cat'"),
        ({"num_classes": 3, "category_ids": [1]}, "each of the 3 classes.*entries=1"),
        ({"weights": "coco-640"}, "no published weights 'coco-640'.*'coco-640'"),
        ({"activation": "tanh"}, "`activation` must be one of"),
        ({"imagesize": 3}, "Did you mean 'image_size'"),
    ],
)
def test_wrong_presets_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        EfficientDet.from_preset(**{"name": "efficientdet-d0", **arguments})


@pytest.mark.slow_elsewhere
def test_one_name_is_no_list_of_its_letters(tmp_path):
    """A string has as many entries as letters, and each would be a class."""
    message = r"`class_names` must be a sequence of names, such as \['cat'\]"
    with pytest.raises(TypeError, match=message):
        EfficientDet.from_preset("efficientdet-lite0", class_names="cat")
    config = tiny_model().config
    with pytest.raises(TypeError, match=message):
        EfficientDet(config, class_names="cat")
    with pytest.raises(TypeError, match=message):  # before the file is looked for
        tiny_model().load_pretrained(tmp_path / "none.keras", class_names="cat")
    with pytest.raises(TypeError, match=message):
        DetectionDataset([], "cat")


@pytest.mark.parametrize(
    "wrong", [{0: "cat", 1: "dog"}, {"cat", "dog"}, ["cat", None], [["cat"], ["dog"]]]
)
def test_class_names_without_an_order_or_that_are_no_names_are_refused(wrong):
    message = "`class_names` must be a sequence of names in the order of the labels"
    with pytest.raises(TypeError, match=message):
        EfficientDet.from_preset("efficientdet-lite0", class_names=wrong)
    with pytest.raises(TypeError, match=message):
        DetectionDataset([], wrong)


def test_numbers_may_name_classes():
    assert DetectionDataset([], np.arange(3)).class_names == ("0", "1", "2")


@pytest.mark.parametrize(
    "wrong", [[1, 1, 2], ["1", "2", "3"], [1, 2.5, 3], [True, 2, 3]]
)
def test_category_ids_are_different_whole_numbers(wrong):
    with pytest.raises(ValueError, match="whole numbers, a different one for each"):
        tiny_model(category_ids=wrong)


@pytest.mark.parametrize("wrong", [None, {"max_detections": 3}, "hard"])
def test_what_is_no_postprocess_is_refused_at_once(wrong):
    model = tiny_model()
    before = model.postprocess
    with pytest.raises(TypeError, match="must be an `ek.Postprocess`"):
        model.postprocess = wrong
    assert model.postprocess is before


def test_weights_are_a_key_a_path_or_an_address():
    with pytest.raises(TypeError, match="by a path or by an address. .*weights=3"):
        EfficientDet.from_preset("efficientdet-lite0", weights=3)


def test_pixels_of_any_type_give_the_same_outputs():
    model, (images, _) = tiny_model(), batch(1)
    expected = ops.convert_to_numpy(model(images)["class_logits"])
    for dtype in ("float32", "int32"):
        out = ops.convert_to_numpy(model(images.astype(dtype))["class_logits"])
        np.testing.assert_array_equal(out, expected)


def test_an_image_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"None, 64, 64, 3\).*1, 32, 64, 3"):
        tiny_model()(np.zeros((1, 32, 64, 3), "uint8"))


# Training


@pytest.mark.smoke
def test_logs_have_every_term(trained):
    _, history = trained
    losses = {"loss", "class_loss", "box_loss", "reg_l2_loss"}
    assert set(history) == losses | {"gradient_norm", "learning_rate"}
    first = {name: numbers[0] for name, numbers in history.items()}
    total = first["class_loss"] + 50 * first["box_loss"] + first["reg_l2_loss"]
    assert first["loss"] == pytest.approx(total, rel=1e-5)


def test_training_moves_statistics_and_averages_of_all_that_moves(trained):
    model, _ = trained
    statistics = model.batch_norm_statistics()
    for variable in statistics:
        if variable.name == "moving_variance":
            assert not np.allclose(ops.convert_to_numpy(variable), 1.0)
    averages = model.averages.values
    assert len(averages) == len(tiny_model().trainable_variables) + len(statistics)
    pairs = zip(values(model.averages.sources), averages, strict=True)
    assert np.mean([not np.array_equal(a, b) for a, b in pairs]) > 0.9


@pytest.mark.slow_elsewhere
@pytest.mark.slow
def test_the_schedule_knows_the_length_of_the_training():
    model = tiny_model()
    model.compile(recipe="reference", learning_rate=0.64, run_eagerly=EAGER)
    model.fit(*batch(4), batch_size=2, epochs=3, verbose=0)
    schedule = schedule_of(model.optimizer)
    assert (schedule.total_steps, schedule.warmup_steps) == (6, 2)
    assert schedule.learning_rate == pytest.approx(0.64 * 2 / 64)
    model.fit(*batch(4), batch_size=2, epochs=5, initial_epoch=3, verbose=0)
    assert schedule_of(model.optimizer).total_steps == 10


SGD = keras.optimizers.SGD(0.1)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (
            {"optimizer": SGD, "schedule": "cosine"},
            ValueError,
            "A Keras optimizer already sets",
        ),
        ({"learning_rate": -1.0}, ValueError, "above 0"),
        ({"clip_norm": -1.0}, ValueError, "`clip_norm` must be a number"),
        ({"ema_decay": 1.0}, ValueError, "below 1"),
        ({"loss": "mse"}, ValueError, "DetectionLoss"),
        ({"matching": "atss"}, ValueError, "`matching`.*matching='atss'"),
        ({"metrics": ["accuracy"]}, TypeError, r"'metrics'.*COCOEvaluation\(dataset"),
    ],
)
def test_wrong_recipes_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        tiny_model().compile(**arguments)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"learning_rate_multipliers": {"^efficentnet": 0.1}}, "learning_rate_mult"),
        ({"loss_scale": 1024.0}, "`loss_scale` is only for models .*'mixed_float16'"),
        ({"jit_compile": "yes"}, "jit_compile"),
    ],
)
def test_a_compile_that_fails_changes_nothing(arguments, message):
    model = tiny_model()
    model.compile("sgd", run_eagerly=True)
    model.freeze("backbone")
    names = ("optimizer", "settings", "averages", "run_eagerly", "trainable_variables")
    before = [getattr(model, name) for name in names]
    with pytest.raises(ValueError, match=message):
        model.compile(freeze="fpn_cells", **arguments)
    after = [getattr(model, name) for name in names]
    assert all(a is b for a, b in zip(after[:-1], before[:-1]))
    assert [v.path for v in after[-1]] == [v.path for v in before[-1]]


def test_eager_steps_do_not_warn_of_an_xla_that_nobody_asked_for(monkeypatch, recwarn):
    monkeypatch.setattr(compile_model, "default_jit_compile", lambda: True)
    model = tiny_model()
    model.compile(run_eagerly=True)
    assert model.run_eagerly and not model.jit_compile
    assert not [w for w in recwarn if "jit_compile" in str(w.message)]


@pytest.mark.parametrize("name", ["pets.keras", "run", "../run"])
def test_a_path_is_no_name_of_a_preset(tmp_path, monkeypatch, name):
    (tmp_path / "run" / "efficientdet-lite0").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "run")
    (tmp_path / "run" / "run").mkdir()
    with pytest.raises(ValueError, match=r"takes the name of a model.*from_archive"):
        EfficientDet.from_preset(name)
    EfficientDet.from_preset("efficientdet-lite0", image_size=64)  # a folder's name too


@pytest.mark.parametrize("name", ["model.h5", "model.hdf5", "model.weights.h5"])
def test_a_kind_of_file_that_loses_the_training_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match=r"'model.keras'.*`save_weights\("):
        tiny_model().save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_no_xla_on_a_cpu():
    model = tiny_model()
    expected = keras.backend.backend() == "jax"
    assert model.jit_compile == expected
    model.compile(recipe="reference")
    assert model.jit_compile == expected
    model.compile(jit_compile=True)
    assert model.jit_compile


# Predicting


def test_predict_returns_padded_detections_in_pixels_of_the_input(trained):
    model, _ = trained
    images, _ = batch(3)
    result = model.predict(images, batch_size=2, verbose=0)
    assert {k: v.shape for k, v in result.items()} == {
        "boxes": (3, 100, 4),
        "scores": (3, 100),
        "labels": (3, 100),
        "num_detections": (3,),
    }
    assert result["boxes"].min() >= 0
    assert result["boxes"].max() <= 64
    for row, count in enumerate(result["num_detections"]):
        assert (result["labels"][row, :count] >= 0).all()
        assert (result["labels"][row, count:] == -1).all()


@pytest.mark.smoke
def test_detect_scales_boxes_back_to_the_image(trained):
    model, _ = trained
    image = np.random.default_rng(2).integers(0, 255, (32, 128, 3)).astype("uint8")
    found = model.detect(image, score_threshold=0.0)
    padded = np.empty((1, 64, 64, 3), "float32")
    padded[:] = model.config.mean_rgb
    # 128 wide becomes 64: the image fills the upper 16 rows.
    padded[0, :16] = ops.convert_to_numpy(
        ops.image.resize(image.astype("float32"), (16, 64), antialias=False)
    )
    result = model.predict(padded, verbose=0)
    count = int(result["num_detections"][0])
    assert len(found) == count > 0
    boxes = np.clip(result["boxes"][0, :count] * 2, 0, [32, 128, 32, 128])
    np.testing.assert_allclose(found.boxes, boxes, rtol=1e-4, atol=1e-3)


def test_threads_may_detect_with_one_model(trained):
    """JAX's `predict_on_batch` gives the arrays of all weights away, and back."""
    detect = functools.partial(trained[0].detect, score_threshold=0.0)
    images = np.random.default_rng(3).integers(0, 255, (4, 32, 48, 3), "uint8")
    alone = [detect(image).boxes for image in images]
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        found = list(threads.map(detect, [*images] * 4))
    for one, boxes in zip(found, alone * 4):
        np.testing.assert_allclose(one.boxes, boxes, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shape", [(20, 30), (20, 30, 1), (20, 30, 4), (1, 1, 3)])
def test_detect_takes_grey_alpha_single_pixels_and_nothing(trained, shape):
    found = trained[0].detect(np.full(shape, 200, "uint8"), score_threshold=0.0)
    assert (found.boxes <= max(shape)).all()
    assert trained[0].detect([]) == []


@pytest.mark.parametrize(
    "images, error, message",
    [
        ("nowhere.jpg", FileNotFoundError, "nowhere.jpg"),
        (np.zeros((3, 3, 2), "uint8"), ValueError, r"shape=\(3, 3, 2\)"),
        (np.zeros((0, 3, 3), "uint8"), ValueError, r"shape=\(0, 3, 3\)"),
        (np.array(["a"]), TypeError, "pixels from 0 to 255"),
    ],
)
def test_detect_names_what_is_not_a_image(trained, images, error, message):
    with pytest.raises(error, match=message):
        trained[0].detect(images)


def test_a_wrong_image_of_several_is_named_by_its_position(trained):
    right = np.zeros((8, 8, 3), "uint8")
    with pytest.raises(ValueError, match=r"shape=\(8, 8, 2\) \(`images\[1\]`\)"):
        trained[0].detect([right, right[..., :2]])
    with pytest.raises(ValueError, match=r"from 0 to 255.*\(`images\[2\]`\)"):
        trained[0].detect(np.stack([right, right, right + np.uint16(9000)]))


def test_a_nested_list_is_no_list_of_images(trained):
    """Each of its rows would be an image without color."""
    image = np.zeros((8, 8, 3), "uint8")
    with pytest.raises(TypeError, match=r"pass `np.array\(image\)`. .*\(8, 3\)"):
        trained[0].detect(image.tolist())
    assert len(trained[0].detect([image.tolist()], verbose=0)) == 1


# Saving


def test_weights_that_do_not_exist_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no file of weights '.*x.weights.h5'"):
        tiny_model().load_weights(tmp_path / "x.weights.h5")


@pytest.mark.parametrize("name", ["model.keras", "model.weights.h5"])
def test_files_restore_everything(trained, tmp_path, name):
    model, path = trained[0], tmp_path / name
    if name.endswith(".keras"):
        model.save(path)
        again = keras.saving.load_model(path)
        assert (again.config, again.class_names) == (model.config, model.class_names)
        assert again.postprocess == model.postprocess
    else:
        model.save_weights(path)
        again = tiny_model()
        again.compile(recipe="reference")
        again.load_weights(path)
    assert_equal(again.weights, model.weights)
    assert_equal(again.trainable_variables, model.trainable_variables)
    assert_equal(again.averages.variables, model.averages.variables)
    assert_equal(again.optimizer.variables, model.optimizer.variables)


def test_a_save_that_fails_leaves_the_older_file(tmp_path, monkeypatch):
    model, path = tiny_model(), tmp_path / "model.keras"
    model.save(path)
    before = path.read_bytes()

    def full_disk(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):
        patched.setattr(type(model), "save_own_variables", full_disk)
        model.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    model.save(path, overwrite=True)
    model.save(tmp_path / "folder", zipped=False)
    assert (tmp_path / "folder" / "config.json").exists()


def test_a_weights_file_without_averages_starts_them_anew(tmp_path):
    plain = tiny_model()
    plain.save_weights(tmp_path / "plain.weights.h5")
    model = tiny_model()
    model.compile(recipe="reference")
    model.load_weights(tmp_path / "plain.weights.h5")
    assert_equal(model.averages.sources, model.averages.values)


@pytest.mark.slow_elsewhere
def test_weights_of_another_class_count_are_named(tmp_path):
    path = tmp_path / "three.weights.h5"
    tiny_model().save_weights(path)
    other = EfficientDet(tiny_model().config.replace(num_classes=5))
    other.compile(recipe="reference")
    variables = [*other.variables, *other.averages.variables]
    before = values([*variables, *other.optimizer.variables])
    with pytest.raises(
        ValueError, match=r"(?s)three.*`num_classes` is 5.*skip_mismatch"
    ):
        other.load_weights(path)
    assert_equal([*variables, *other.optimizer.variables], before)
    other.load_weights(path, skip_mismatch=True)
    with pytest.raises(FileNotFoundError):
        other.load_weights(tmp_path / "none.weights.h5")


def test_config_of_the_model_survives_json(trained):
    config = json.loads(json.dumps(trained[0].get_config()))
    again = EfficientDet.from_config(config)
    assert again.config == trained[0].config
    assert json.loads(json.dumps(again.get_config())) == config
