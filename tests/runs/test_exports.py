"""`train --export`: what fails is known before the first epoch, the best is kept."""

import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from support.tiny import tiny_model
from support.tiny_run import tiny_run

import effdet_keras as ek
from effdet_keras.export.registry import TARGETS
from effdet_keras.network.batch_norm import batch_norm_layers
from effdet_keras.runs import exports

pytestmark = pytest.mark.tensorflow


class Begun(keras.callbacks.Callback):
    """Whether a training began."""

    is_begun = False

    def on_train_begin(self, logs=None):
        self.is_begun = True


@pytest.mark.slow
def test_the_best_checkpoint_is_exported_to_the_folder_of_the_run(shapes, tmp_path):
    pytest.importorskip("tf2onnx")
    pytest.importorskip("onnxruntime")
    out = tmp_path / "run"
    fields = tiny_run(epochs=1, export="triton")
    result = ek.fine_tune(shapes, out=out, **fields)
    folder = out / "export" / "triton" / result.model.config.name
    report = json.loads((folder / "export_report.json").read_text())
    assert report["target"] == "triton"
    assert (folder / "labels.txt").read_text().split() == list(result.model.class_names)
    predictor = ek.Predictor.load(folder / "1" / "model.onnx")
    assert predictor.config == result.model.config
    text = (out / "log.txt").read_text()
    assert "Export of that checkpoint for 'triton'" in text
    ek.fine_tune(shapes, out=out, overwrite=True, **tiny_run(epochs=1, one_batch=True))
    assert not (out / "export").exists()  # it is of the run that was removed


def test_what_a_target_refuses_is_known_before_the_first_epoch(shapes, tmp_path):
    out, begun = tmp_path / "run", Begun()
    fields = {**tiny_run(epochs=1, export="frigate"), "image_size": (64, 96)}
    with pytest.raises(ValueError, match="Frigate cuts squares"):
        ek.fine_tune(shapes, out=out, callbacks=[begun], **fields)
    assert not begun.is_begun
    assert not (out / "configuration.yaml").exists()


def test_a_target_that_is_not_there_is_told():
    with pytest.raises(ValueError, match="`export` must be one of 'mediapipe'"):
        ek.RunConfiguration(export="phone")


def recorded(monkeypatch, model):
    """What `export` of a model is called with."""
    calls = []

    def export(self, path, *, target, verbose=1, **options):
        calls.append((path.parts[-2:], target, self.quantization, options))

    monkeypatch.setattr(type(model), "export", export)
    return calls


def test_a_model_that_will_learn_its_ranges_is_tried_without_them(monkeypatch):
    model = tiny_model().quantize_aware()
    calls = recorded(monkeypatch, model)
    exports.try_export(model, "coral", "images")
    ((_, target, quantization, options),) = calls
    assert (target, quantization) == ("coral", None)
    assert options == {"calibration": "images", "calibration_images": 8}
    assert model.quantization is not None


def test_a_model_is_tried_with_numbers_like_those_of_a_trained_one(monkeypatch):
    model, found = tiny_model(), {}

    def export(self, path, *, target, verbose=1, **options):
        outputs = self(np.full((1, *self.config.image_size, 3), 200.0, "float32"))
        scales = [tuple(np.array(bn.gamma)) for bn in batch_norm_layers(self)]
        found[target] = options, np.std(outputs["class_logits"]), len(set(scales))

    monkeypatch.setattr(type(model), "export", export)
    before = [np.array(weight) for weight in model.weights]
    for target in ("executorch", "ncnn", "coral"):
        exports.try_export(model, target, "images")
    assert found["executorch"][0] == {}
    assert found["ncnn"][0] == {"precision": "float32"}
    assert min(found[name][1] for name in ("executorch", "ncnn")) > 0.3
    assert found["ncnn"][2] == len(batch_norm_layers(model))
    # Rounding to int8 is not made for them.
    assert found["coral"][1] < 0.1 and found["coral"][2] < found["ncnn"][2]
    assert all(map(np.array_equal, before, model.weights))


@pytest.mark.parametrize("target", TARGETS)
def test_images_are_given_where_a_target_has_nothing_else(target, monkeypatch):
    needs = {"coral", "frigate", "hailo", "imx500", "litert-npu", "rknn"}
    model = SimpleNamespace(quantization=None)
    found = exports._options(model, target, "images")
    assert found == ({"calibration": "images"} if target in needs else {})
    learned = exports._options(SimpleNamespace(quantization={}), target, "images")
    assert ("calibration" in learned) == (target in {"hailo", "imx500", "rknn"})


def test_tf_serving_gets_a_version(tmp_path, monkeypatch):
    model = tiny_model()
    calls = recorded(monkeypatch, model)
    exports.export_run(model, "tf-serving", tmp_path, "images")
    assert calls == [((model.config.name, "1"), "tf-serving", None, {})]


def test_an_export_without_a_folder_is_refused_before_any_work():
    with pytest.raises(ValueError, match="name that with `out`.*export='triton'"):
        ek.fine_tune("nowhere", export="triton")
