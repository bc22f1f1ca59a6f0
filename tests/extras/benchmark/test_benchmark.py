"""The benchmark measures each stage, of live models and of exported files."""

import json
import types

import numpy as np
import pytest
from PIL import Image
from support.tiny import lively_model

import effdet_keras as ek
from effdet_keras.export.runtime import ExportedDetector, describe
from effdet_keras.extras.benchmark import benchmark_model as module
from effdet_keras.extras.benchmark.bare_network import BareNetwork
from effdet_keras.extras.benchmark.benchmark_model import benchmark

pytestmark = pytest.mark.tensorflow


class SlowRuntime:
    """The model itself, on a clock that each run moves on by 7 seconds."""

    def __init__(self, model, path, clock, batch_size=None, outputs="raw"):
        self.path, self.model, self.clock, self.batches = path, model, clock, []
        self.description = describe(model, batch_size=batch_size, outputs=outputs)

    def run(self, images):
        self.batches.append(len(images))
        self.clock.now += 7.0
        return {name: np.asarray(value) for name, value in self.model(images).items()}


@pytest.fixture(scope="module")
def model():
    return lively_model()


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still unless somebody moves it."""
    clock = types.SimpleNamespace(now=0.0)
    monkeypatch.setattr(module.time, "perf_counter", lambda: clock.now)
    return clock


@pytest.mark.smoke
def test_time_counts_for_the_stage_that_took_it(model, clock, monkeypatch, tmp_path):
    runtime = SlowRuntime(model, tmp_path / "pets.tflite", clock)
    detector = ExportedDetector(runtime)

    def takes(seconds, function):
        def run(*arguments):
            clock.now += seconds
            return function(*arguments)

        return run

    monkeypatch.setattr(module, "read_image", takes(1.0, module.read_image))
    monkeypatch.setattr(module, "letterboxed", takes(2.0, module.letterboxed))
    detector.detect_outputs = takes(5.0, detector.detect_outputs)
    report = benchmark(ek.Predictor(detector), batch_size=2, runs=4)
    assert {name: times["median_ms"] for name, times in report.stages.items()} == {
        "decode": 2000,
        "letterbox": 4000,
        "network": 7000,
        "postprocess": 5000,
        "all": 18000,
    }
    assert report.images_per_second == pytest.approx(2 / 18)
    assert runtime.batches == [2] * (4 + 3)  # three to warm up
    assert "pets.tflite (efficientdet-lite0, float32), input 64 x 64" in str(report)
    report.save(tmp_path / "times.json")
    saved = json.loads((tmp_path / "times.json").read_text())
    assert saved["stages"]["network"]["p90_ms"] == 7000


def test_a_file_with_its_own_batch_and_postprocess(model, clock, tmp_path):
    path = tmp_path / "pets.tflite"
    runtime = SlowRuntime(model, path, clock, batch_size=1, outputs="detections")
    predictor = ek.Predictor(ExportedDetector(runtime))
    report = benchmark(predictor, batch_size=8, runs=1)
    assert report.batch_size == 1 and set(runtime.batches) == {1}
    assert "postprocess" not in report.stages
    assert "inside the network" in str(report)


def test_a_live_model_is_measured_with_and_without_postprocess(
    model, clock, monkeypatch, tmp_path
):
    Image.new("RGB", (20, 10)).save(tmp_path / "a.png")
    alone, both = BareNetwork.predict_on_batch, type(model).predict_on_batch

    def network(self, images):
        clock.now += 3.0
        return alone(self, images)

    def everything(self, images):
        clock.now += 10.0
        return both(self, images)

    monkeypatch.setattr(BareNetwork, "predict_on_batch", network)
    monkeypatch.setattr(type(model), "predict_on_batch", everything)
    report = benchmark(ek.Predictor(model), tmp_path, runs=2)
    assert report.stages["network"]["median_ms"] == 3000
    assert report.stages["postprocess"]["median_ms"] == 7000
    assert report.stages["all"]["median_ms"] == 10000
    assert "efficientdet-lite0 in Keras on tensorflow" in str(report)


@pytest.mark.slow
def test_a_trace_has_the_runs_and_not_what_warms_up(model, tmp_path):
    class Runtime(SlowRuntime):
        def run(self, images):
            with module.tf.profiler.experimental.Trace(f"run{len(self.batches)}"):
                return super().run(images)

    runtime = Runtime(model, tmp_path / "pets.tflite", types.SimpleNamespace(now=0.0))
    predictor = ek.Predictor(ExportedDetector(runtime))
    benchmark(predictor, runs=2, trace=tmp_path / "trace")
    (trace,) = (tmp_path / "trace").rglob("*.xplane.pb")
    content = trace.read_bytes()
    assert [f"run{i}".encode() in content for i in range(5)] == [False] * 3 + [True] * 2
