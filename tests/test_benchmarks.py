"""The benchmarks: that they run and print what they promise. No times are judged."""

import json
import pathlib
import subprocess
import sys

import pytest

from effdet_keras.extras.shapes import write_shapes
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network.config import EfficientDetConfig

FOLDER = pathlib.Path(__file__).parents[1] / "benchmarks"


def printed(script, *options):
    """The lines that a benchmark prints."""
    done = subprocess.run(
        [sys.executable, FOLDER / script, *options],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.splitlines()


def cases_in(output):
    """Those of the lines that are JSON: one for each case."""
    return [json.loads(line) for line in output if line.startswith("{")]


@pytest.mark.slow
def test_the_evaluation_prints_a_line_for_each_backend():
    lines = [json.loads(line) for line in printed("coco_eval.py", "--quick")]
    assert lines[0]["case"] == "pycocotools"
    assert all(line["numbers_are_equal"] for line in lines)
    assert all(line["seconds"] > 0 and line["peak_mb"] > 1 for line in lines)
    assert {line["detections"] for line in lines} == {5000}


@pytest.mark.slow
def test_the_scorecard_prints_a_line_for_each_case_and_a_table(tmp_path):
    options = ["--starts", "scratch", "--recipes", "by-hand", "auto"]
    options += ["--image-size", "128", "--steps", "2", "--batch-size", "2"]
    options += ["--num-images", "4", "--num-judges", "2", "--seeds", "0", "1"]
    output = printed("scorecard.py", "blood-cells", *options)
    lines = cases_in(output)
    assert [line["seed"] for line in lines] == [0, 0, 1, 1]
    for line in lines:
        assert (line["images"], line["steps"]) == (4, 2)
        assert line["cpu_minutes"] > 0 and -1 <= line["AP"] <= line["AP50"] <= 1
    rows = [x for x in output if x.startswith("| blood-cells")]
    assert [row.count("±") for row in rows] == [2, 2]  # AP and AP50, over the seeds
    options += ["--seeds", "0"]
    options += ["--recipes", "search", "--searched", "default", "AdamW"]
    first, second, best = cases_in(printed("scorecard.py", "blood-cells", *options))
    assert (first["searched"], second["searched"]) == ("default", "AdamW")
    assert best["found"] in ("default", "AdamW") and best["steps"] == 2


@pytest.mark.slow
def test_the_rewrites_of_the_graph_are_measured_in_turn():
    first, later = cases_in(printed("graph_rewrites.py", "--quick"))
    assert [first["case"], later["case"]] == ["first step", "later step"]
    for side in ("ours", "ours_all", "ours_none"):
        assert first["cpu_seconds"][side] > later["cpu_seconds"][side] > 0


@pytest.mark.slow
def test_the_pause_of_a_checkpoint_is_measured_beside_a_copy():
    (line,) = cases_in(printed("checkpoint_pause.py", "--quick"))
    assert line["case"] == "efficientdet-lite0" and line["bytes"] > 30e6
    assert line["pause_seconds"] > line["copy_seconds"] > 0


@pytest.mark.slow
def test_the_pauses_between_epochs_are_measured():
    ours, autotuned = cases_in(printed("epoch_pause.py", "--quick"))
    assert (ours["case"], autotuned["case"]) == ("ours", "with autotuning")
    assert ours["epochs"] == autotuned["epochs"] == 2
    assert ours["steps_seconds"] > 0


@pytest.mark.slow
def test_a_server_under_load_loses_no_request():
    for package in ("starlette", "uvicorn", "httpx", "onnxruntime"):
        pytest.importorskip(package, reason="needs the extras `serve` and `onnx`")
    lines = cases_in(printed("serving.py", "--quick"))
    assert [x["case"] for x in lines] == ["--max-batch 8", "--max-batch 1"]
    for line in lines:
        assert (line["requests"], line["bad"]) == (60, 3)
        assert line["answered_otherwise"] == line["exit_status"] == 0
        assert line["lost_during_reload"] == line["lost_during_end"] == 0
        assert line["answered_during_end"] == line["clients"]
        assert line["requests_per_second"] > 0


@pytest.mark.slow
def test_the_memory_of_a_shard_does_not_grow_with_its_images():
    counts = ["--counts", "500", "4000"]
    lines = cases_in(printed("bulk_memory.py", *counts))
    base, few, many = (line["peak_mb"] for line in lines)
    assert [line["images"] for line in lines] == [0, 500, 4000]
    # 3,500 decoded images would be 3,200 MB, and their rows about 60 MB.
    assert many < few + 100 and few < base + 400


def test_the_time_to_load_a_dataset_is_measured():
    (line,) = cases_in(printed("load_time.py", "--quick"))
    assert line["images"] == 100 and line["cpu_seconds"] > 0 and line["peak_gb"] < 8


@pytest.mark.slow
def test_actors_are_measured_beside_a_loop():
    pytest.importorskip("ray", reason="needs the extra `ray`")
    lines = cases_in(printed("actors.py", "--quick"))
    assert [x["case"] for x in lines[1:]] == ["BatchDetector", "1 actor", "2 actors"]
    assert all(x["images_per_second"] > 0 for x in lines)


@pytest.mark.slow
@pytest.mark.extra_packages
def test_the_benchmark_of_graphics_cards_runs_without_tensorflow():
    pytest.importorskip("torch")
    options = ["--models", "lite0", "--precisions", "float32", "--cases", "train"]
    sides = ["--sides", "ours_torch"]
    lines = cases_in(printed("gpu.py", "--quick", *sides, *options))
    (prepared,) = (line["prepare"] for line in lines if "prepare" in line)
    assert prepared["build"] > 0 and prepared["first_step"] > 0
    (timed,) = (line for line in lines if line.get("case") == "train")
    assert timed["side"] == "ours_torch" and timed["images_per_second"] > 0


@pytest.mark.slow
def test_sizing_has_a_line_for_each_runtime(tmp_path):
    lines = cases_in(printed("sizing.py", "--quick"))
    assert {x["runtime"] for x in lines} >= {"Keras", "SavedModel"}
    for line in lines:
        assert line["images_per_second_and_core"] > 0 and line["peak_mb"] > 50


@pytest.mark.slow
def test_int8_is_judged_after_training_and_with_training_for_it(tmp_path):
    lines = cases_in(printed("quantization.py", "--quick"))
    cases = ["float", "int8 after training", "int8 trained for"]
    assert [line["case"] for line in lines] == cases
    sizes = [line["megabytes"] for line in lines]
    assert sizes[1] < sizes[0] / 2 and sizes[2] < sizes[0] / 2
    assert lines[2]["cpu_minutes"] > 0


@pytest.mark.slow
def test_another_activation_is_judged_with_a_teacher_and_without(tmp_path):
    names = ("Platelets", "RBC", "WBC")
    model = EfficientDet(
        EfficientDetConfig.from_name(
            "efficientdet-lite0", image_size=64, num_classes=3, activation="swish"
        ),
        class_names=names,
    )
    model.compile()
    model.save(tmp_path / "teacher.keras")
    output = printed("distillation.py", tmp_path / "teacher.keras", "--quick")
    cases = [line["case"] for line in cases_in(output)]
    kinds = ["as it is", "annotations alone", "teacher"]
    assert cases == ["teacher", *(f"relu6, {kind}" for kind in kinds)]


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--whole",)], ids=["frozen", "whole"])
def test_the_error_of_a_forecast_is_that_of_its_middle(more):
    (line,) = cases_in(printed("forecast_error.py", "--quick", *more))
    assert line["images"] == [5, 10, 20, 40] and len(line["AP"]) == 4
    low, middle, high = line["forecast"]
    assert line["error"] == pytest.approx(middle - line["AP"][-1], abs=2e-4)
    assert line["covered"] == (low <= line["AP"][-1] <= high)


@pytest.mark.slow
def test_rounds_of_label_next_stand_beside_random_choice(tmp_path):
    curve = tmp_path / "curve.svg"
    (line,) = cases_in(printed("label_next_rounds.py", "--quick", "--draw", curve))
    assert list(line["random"]) == ["12", "25", "50", "100"]
    assert list(line["label-next"]) == ["12", "25", "40", "60"]
    assert line["random"]["12"] == line["label-next"]["12"]
    assert "<svg" in curve.read_text()


@pytest.mark.slow
def test_damaged_annotations_are_counted_by_kind():
    (line,) = cases_in(printed("suspects_found.py", "--quick"))
    assert set(line["found_of"]) == {"deleted", "moved", "renamed"}
    assert line["damaged"] > 0 and 0 <= line["found"] <= 1
    assert line["found"] <= line["found_in_the_whole_list"]


@pytest.mark.slow
def test_a_search_stands_beside_an_exhaustive_one():
    (line,) = cases_in(printed("choose_search.py", "--quick"))
    assert line["candidates"] == 2 and len(line["AP_of_all"]) == 2
    assert line["lost"] == pytest.approx(line["best"]["AP"] - line["pick"]["AP"])
    halving, exhaustive = line["halving"], line["exhaustive"]
    assert 0 < halving["training_cpu_minutes"] < exhaustive["training_cpu_minutes"]


@pytest.mark.slow
def test_a_detector_of_other_data_stands_beside_an_imagenet_backbone(tmp_path):
    for name in ("one", "two"):
        write_shapes(tmp_path / name, num_train=12, num_valid=4)
    data = [str(tmp_path / name) for name in ("one", "two")]
    options = ["--folds", data[1], "--detector-steps", "2", "--steps", "2"]
    options += ["--recipes", "ImageNet", "default", "--keep", tmp_path / "detectors"]
    options += ["--batch-size", "4", "--image-size", "64", "64"]
    output = printed("detector_start.py", *data, *options)
    lines = cases_in(output)
    assert [line["recipe"] for line in lines] == ["ImageNet", "default"]
    assert {(line["dataset"], line["steps"]) for line in lines} == {("two", 2)}
    assert all(-1 <= line["AP"] <= line["AP50"] <= 1 for line in lines)
    assert [x.name for x in (tmp_path / "detectors").iterdir()] == [
        "without_two_auto_2.keras"
    ]


@pytest.mark.slow
def test_each_training_of_a_seed_is_judged_with_several_weights():
    options = ["--seeds", "0", "1", "--steps", "2", "--image-size", "64"]
    output = printed("seed_variance.py", "blood-cells", *options, "--batch-size", "80")
    first, second = cases_in(output)
    assert (first["seed"], second["seed"], first["steps"]) == (0, 1, 2)
    assert len(first["AP"]) == 6
    assert [x.split(" | ")[0] for x in output if x.startswith("| ")][1:] == [
        f"| {name}" for name in first["AP"]
    ]


@pytest.mark.slow
def test_each_preset_trains_for_the_same_minutes():
    options = ["--models", "lite0:64", "lite1:64", "--minutes", "0.0001"]
    output = printed("preset_by_minutes.py", "blood-cells", *options)
    lines = cases_in(output)
    assert [line["model"] for line in lines] == ["lite0:64", "lite1:64"]
    for line in lines:
        assert line["epochs"] == 1 and line["steps"] > 1
        assert line["image_size"] == [64, 64] and line["cpu_minutes"] > 0


@pytest.mark.slow
def test_rare_classes_are_judged_beside_the_others(tmp_path):
    write_shapes(tmp_path, num_train=40, num_valid=4)
    options = ["--steps", "2", "--image-size", "64", "64", "--kinds", "none", "both"]
    lines = cases_in(printed("balance.py", tmp_path, *options))
    assert [line["kind"] for line in lines] == ["none", "both"]
    for line in lines:
        *rare, other = line["boxes"]
        assert sum(rare) < other  # of the three classes two have lost their boxes
        aps = line["AP_of_classes"]
        assert line["AP_of_rare"] == pytest.approx(sum(aps[:2]) / 2, abs=1e-4)
        assert line["AP_of_others"] == aps[2]
