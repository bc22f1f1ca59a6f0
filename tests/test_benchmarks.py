"""The benchmarks: that they run and print what they promise. No times are judged."""

import json
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).parents[1] / "benchmarks"


@pytest.mark.slow
def test_the_evaluation_prints_a_line_for_each_backend():
    done = subprocess.run(
        [sys.executable, FOLDER / "coco_eval.py", "--quick"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["case"] == "pycocotools"
    assert all(line["numbers_are_equal"] for line in lines)
    assert all(line["seconds"] > 0 and line["peak_mb"] > 1 for line in lines)
    assert {line["detections"] for line in lines} == {5000}


@pytest.mark.slow
def test_the_scorecard_prints_a_line_for_each_case_and_a_table(tmp_path):
    options = ["--starts", "scratch", "--recipes", "by-hand", "auto"]
    options += ["--image-size", "128", "--steps", "2", "--batch-size", "2"]
    options += ["--num-images", "4", "--num-judges", "2", "--seeds", "0", "1"]
    done = subprocess.run(
        [sys.executable, FOLDER / "scorecard.py", "blood-cells", *options],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
    assert [line["seed"] for line in lines] == [0, 1]
    for line in lines:
        assert (line["images"], line["steps"]) == (4, 2)
        assert line["cpu_minutes"] > 0 and -1 <= line["AP"] <= line["AP50"] <= 1
    (row,) = [x for x in done.stdout.splitlines() if x.startswith("| blood-cells")]
    assert row.count("±") == 2  # AP and AP50, over the seeds


@pytest.mark.slow
def test_the_pause_of_a_checkpoint_is_measured_beside_a_copy():
    done = subprocess.run(
        [sys.executable, FOLDER / "checkpoint_pause.py", "--quick"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    (line,) = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
    assert line["case"] == "efficientdet-lite0" and line["bytes"] > 30e6
    assert line["pause_seconds"] > line["copy_seconds"] > 0


@pytest.mark.slow
def test_an_adversarial_step_is_measured_beside_one_without():
    done = subprocess.run(
        [sys.executable, FOLDER / "adversarial_step.py", "--quick"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
    assert [x["case"] for x in lines] == ["without", "class"]
    assert lines[1]["ratio"] > 1


@pytest.mark.slow
def test_a_server_under_load_loses_no_request():
    for package in ("starlette", "uvicorn", "httpx", "onnxruntime"):
        pytest.importorskip(package, reason="needs the extras `serve` and `onnx`")
    done = subprocess.run(
        [sys.executable, FOLDER / "serving.py", "--quick"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
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
    done = subprocess.run(
        [sys.executable, FOLDER / "bulk_memory.py", *counts],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
    base, few, many = (line["peak_mb"] for line in lines)
    assert [line["images"] for line in lines] == [0, 500, 4000]
    # 3,500 decoded images would be 3,200 MB, and their rows about 60 MB.
    assert many < few + 100 and few < base + 400


@pytest.mark.slow
def test_actors_are_measured_beside_a_loop():
    pytest.importorskip("ray", reason="needs the extra `ray`")
    done = subprocess.run(
        [sys.executable, FOLDER / "actors.py", "--quick"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
    assert [x["case"] for x in lines[1:]] == ["BatchDetector", "1 actor", "2 actors"]
    assert all(x["images_per_second"] > 0 for x in lines)


@pytest.mark.slow
def test_sizing_has_a_line_for_each_runtime(tmp_path):
    done = subprocess.run(
        [sys.executable, FOLDER / "sizing.py", "--quick"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
    assert {x["runtime"] for x in lines} >= {"Keras", "SavedModel"}
    for line in lines:
        assert line["images_per_second_and_core"] > 0 and line["peak_mb"] > 50


@pytest.mark.slow
def test_int8_is_judged_after_training_and_with_training_for_it(tmp_path):
    done = subprocess.run(
        [sys.executable, FOLDER / "quantization.py", "--quick"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
    cases = ["float", "int8 after training", "int8 trained for"]
    assert [line["case"] for line in lines] == cases
    sizes = [line["megabytes"] for line in lines]
    assert sizes[1] < sizes[0] / 2 and sizes[2] < sizes[0] / 2
    assert lines[2]["cpu_minutes"] > 0
