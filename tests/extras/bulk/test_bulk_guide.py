"""docs/bulk.md: its commands and programs are run, on real images."""

import glob
import json
import os
import pathlib
import re
import shlex

import numpy as np
import pytest
from PIL import Image
from support.tiny import LITE0, lively_model

import effdet_keras as ek
from effdet_keras import cli
from effdet_keras.extras.bulk.batch_detector import BatchDetector
from effdet_keras.weights.archive import write_archive

pytestmark = pytest.mark.tensorflow

ROOT = pathlib.Path(__file__).parents[3]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(language):
    text = (ROOT / "docs" / "bulk.md").read_text()
    return [code for kind, code in FENCE.findall(text) if kind == language]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, its ONNX export, and images, of which one is damaged."""
    folder = tmp_path_factory.mktemp("many")
    model = lively_model(backbone=LITE0)
    write_archive(model, folder / "pets.keras")
    rng = np.random.default_rng(5)
    (folder / "images").mkdir()
    for number in range(20):
        pixels = rng.integers(0, 256, (40, 56, 3), "uint8")
        Image.fromarray(pixels).save(folder / "images" / f"{number:02}.jpg")
    (folder / "images" / "03.jpg").write_bytes(b"no image")
    return folder


@pytest.fixture
def exported(folder):
    """The same folder, with `pets.onnx`, and the rows that one detector finds."""
    pytest.importorskip("tf2onnx", reason="needs the extra `onnx`")
    pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
    if not (folder / "pets.onnx").exists():
        model = ek.EfficientDet.from_archive(folder / "pets.keras")
        model.export(folder / "pets.onnx", verbose=0)
    detector = BatchDetector(folder / "pets.onnx", 0.4)
    paths = sorted(glob.glob("images/*.jpg", root_dir=folder))
    rows = detector.rows({"path": [str(folder / path) for path in paths]})
    assert sum(map(len, (row["label"] for row in rows)))
    return [{**row, "file_name": path} for row, path in zip(rows, paths)]


def assert_found(rows, expected):
    rows = sorted(rows, key=lambda row: row["file_name"])
    assert [pathlib.Path(row["file_name"]).name for row in rows] == [
        pathlib.Path(row["file_name"]).name for row in expected
    ]
    assert [i for i, row in enumerate(rows) if row["error"] is not None] == [3]
    for row, same in zip(rows, expected):
        assert row["label"] == same["label"]
        np.testing.assert_allclose(row["score"], same["score"], atol=1e-3)


def test_the_commands_of_shards(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    commands = [line for line in blocks("sh")[0].splitlines() if line]
    statuses = [cli.main(shlex.split(command)[1:]) for command in commands]
    assert sorted(statuses) == [0, 0, 1]  # the shard of the damaged image
    found = json.loads((folder / "found.json").read_text())
    assert len(found["images"]) == 19 and found["annotations"]
    assert "could not be read: '03.jpg'" in capsys.readouterr().err


@pytest.mark.slow
def test_the_program_for_ray(folder, exported, monkeypatch):
    ray = pytest.importorskip("ray", reason="needs the extra `ray`")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `ray`")
    (program,) = [code for code in blocks("python") if "import ray" in code]
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RAY_worker_niceness", "0")
    workers = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": workers})
    # The workers of Ray begin in a folder of their own.
    program = program.replace("images/*", f"{folder}/images/*")
    for name in ("pets.onnx", "found_by_ray"):
        program = program.replace(f'"{name}"', f'"{folder / name}"')
    try:
        exec(program, {})
    finally:
        ray.shutdown()
    assert_found(parquet.read_table(folder / "found_by_ray").to_pylist(), exported)


@pytest.mark.slow
def test_the_program_for_beam(folder, exported, monkeypatch):
    pytest.importorskip("apache_beam", reason="the guide's snippet for Beam")
    (program,) = [code for code in blocks("python") if "apache_beam" in code]
    monkeypatch.chdir(folder)
    exec(program, {"__name__": "program"})
    files = sorted(folder.glob("found_by_beam*.jsonl"))
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert_found(map(json.loads, lines), exported)
