"""The notebooks run from top to bottom, on stand-ins for what they would fetch.

`!` and `%` lines are the notebook's and left out. The cell of settings of a training is
replaced by small ones, and its steps run eagerly: faster for two of them than a graph.
"""

import ast
import json
import pathlib
import re
import shutil
import tarfile

import keras
import numpy as np
import pytest
from support import programs
from support.remote import web_server
from support.tiny import LITE0, tiny_model

import effdet_keras as ek
from effdet_keras.weights.archive import read_archive_info
from effdet_keras.weights.locate import cache_path
from effdet_keras.weights.presets import find_published_weights

ROOT = pathlib.Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
PREDICT, TRAIN = "predict_pretrained.ipynb", "train_own_data.ipynb"
HUB = "finetune_from_hub.ipynb"
PHONE = "train_to_phone.ipynb"
COURSE = (PREDICT, TRAIN, HUB, PHONE)
NO_NETWORK = {
    **dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9"),
    "no_proxy": "127.0.0.1",
}
STOP_SIGN = 12  # the output of COCO's category 13, which the notebook draws
EAGERLY = """
import functools
import effdet_keras
eager = functools.partialmethod(effdet_keras.EfficientDet.compile, run_eagerly=True)
effdet_keras.EfficientDet.compile = eager
"""


def cells(name, kind):
    notebook = json.loads((EXAMPLES / name).read_text())
    return [
        "".join(cell["source"])
        for cell in notebook["cells"]
        if cell["cell_type"] == kind
    ]


def as_script(name, settings=None):
    """The cells' Python in their order, with other settings if there are any."""
    code = cells(name, "code")
    if settings is not None:
        (place,) = (i for i, cell in enumerate(code) if "\nEPOCHS = " in cell)
        assert names_set_in(settings) == names_set_in(code[place])
        code[place] = settings
        code.insert(0, EAGERLY)
    lines = "\n\n".join(code).splitlines()
    return "\n".join(line for line in lines if not line.startswith(("%", "!")))


def names_set_in(code):
    nodes = ast.walk(ast.parse(code))
    return {
        n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def run(script, folder):
    """What a script prints; fails if the script does."""
    (folder / "notebook.py").write_text(script)
    return programs.run_alone("notebook.py", cwd=folder, **NO_NETWORK, MPLBACKEND="agg")


def write_stand_in(path):
    """A packed checkpoint of D0 with random weights that sees stop signs all over."""
    model = ek.EfficientDet.from_preset("efficientdet-d0")
    (bias,) = (v for v in model.weights if v.path.endswith("class-predict/bias"))
    values = np.array(keras.ops.convert_to_numpy(bias))
    values[STOP_SIGN] = 1.0  # of the first of nine anchors
    bias.assign(values)
    folder = path.parent / "efficientdet-d0"
    model.export_checkpoint(folder / "model", format="automl-tf1")
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.add(folder, folder.name)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_predict_pretrained_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("EFFDET_KERAS_CACHE", str(tmp_path / "cache"))
    kept = cache_path(find_published_weights("efficientdet-d0", "coco").url)
    kept.parent.mkdir()
    write_stand_in(kept)
    printed = run(as_script(PREDICT), tmp_path)
    assert "Loaded 709 of 709 weights of efficientdet-d0" in printed
    assert "stop sign" in printed
    assert (tmp_path / "found.jpg").exists()


SMALL = "BATCH_SIZE, EPOCHS = 2, 1\n"
START = f"""{SMALL}
MODEL, WEIGHTS = "efficientdet-lite0", "start.keras"
MODEL_OPTIONS = {{"image_size": 64}}
"""
TRAIN_SETTINGS = f'{START}DATA, OUT, HEAD_EPOCHS = "images.zip", "out", 1'
HUB_SETTINGS = f'{SMALL}DATA, OUT, HEAD_EPOCHS = "images", "out", 1'
PHONE_SETTINGS = f'{START}DATA, MODEL_FILE = "images", ""'


@pytest.fixture
def images(tmp_path):
    """Images to train on, and weights to start from, which another process knows."""
    folder = tmp_path / "images"
    ek.data.write_shapes(folder, num_train=4, num_valid=2, image_size=64)
    model = tiny_model(backbone=LITE0, class_names=("star", "square", "moon"))
    model.save(tmp_path / "start.keras")
    return folder


@pytest.mark.tensorflow
@pytest.mark.slow
def test_train_own_data_runs_and_resumes(tmp_path, images):
    shutil.make_archive(images, "zip", images)
    (resuming,) = (cell for cell in cells(TRAIN, "code") if "resume=True" in cell)
    script = "\n".join([as_script(TRAIN, TRAIN_SETTINGS), "EPOCHS = 2", resuming])
    printed = run(script, tmp_path)
    assert "carried over by name: square" in printed
    for name in ("out/best.keras", "out/curves.png", "found.jpg", "detector.keras"):
        assert (tmp_path / name).exists(), name
    assert read_archive_info(tmp_path / "out" / "last.keras")["epoch"] == 2


@pytest.mark.slow  # a minute; tests/hub has each step of it
@pytest.mark.tensorflow
def test_finetune_from_hub_runs(tmp_path, images, monkeypatch):
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "cache"))
    tiny_model(backbone=LITE0).export_hub_module(tmp_path / "module")
    shutil.make_archive(tmp_path / "module", "gztar", tmp_path / "module")
    with web_server(tmp_path) as server:
        settings = f'{HUB_SETTINGS}\nURL = "{server.address}/module.tar.gz"'
        printed = run(as_script(HUB, settings), tmp_path)
    told = re.findall("From TF-Hub module .*: (.*)", printed)
    assert len(told) == 2  # the one that was fetched, and the one that was made
    assert all("efficientdet-lite0, in this package's network" in x for x in told)
    for name in ("detector.keras", "module/saved_model.pb", "module.tar.gz"):
        assert (tmp_path / "out" / name).exists(), name


@pytest.mark.tensorflow
@pytest.mark.slow
def test_train_to_phone_runs(tmp_path, images):
    pytest.importorskip("ai_edge_litert")
    printed = run(as_script(PHONE, PHONE_SETTINGS), tmp_path)
    assert "export: AP 0." in printed
    assert (tmp_path / "phone" / "found.jpg").exists()
    sizes = [
        (tmp_path / "phone" / name).stat().st_size
        for name in ("detector.tflite", "detector_int8.tflite")
    ]
    assert sizes[1] < 0.5 * sizes[0]


@pytest.mark.parametrize("split", ["valid", "val2017", "validation", "test", None])
@pytest.mark.parametrize("name", [TRAIN, HUB, PHONE])
def test_a_validation_split_may_have_any_usual_name(name, split, tmp_path, monkeypatch):
    (cell,) = (cell for cell in cells(name, "code") if "load_train_valid" in cell)
    train, valid = ek.data.write_shapes(
        tmp_path / "shapes", num_train=10, num_valid=2, image_size=64
    )
    name_of_train = "train2017" if split == "val2017" else "train"
    others = {} if split is None else {split: valid}
    splits = {name_of_train: train, **others}
    ek.data.write_tfrecord(splits, tmp_path / "records")
    code = cell.partition("if MODEL_FILE")[0]  # the data alone
    defined = {"DATA": str(tmp_path / "records"), "OUT": str(tmp_path / "out")}
    exec(compile(code, name, "exec"), defined)
    # A test split stays for the test.
    expected = (9, 1) if split in ("test", None) else (10, 2)
    assert (len(defined["train"]), len(defined["valid"])) == expected


@pytest.mark.parametrize("name", COURSE)
def test_it_installs_first_keeps_no_output_and_names_pages_that_are_there(name):
    notebook = json.loads((EXAMPLES / name).read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not c["outputs"] and c["execution_count"] is None for c in code)
    assert "%pip install" in "".join(code[0]["source"])
    text = "\n".join(cells(name, "markdown"))
    pages = re.findall(r"`((?:docs/)?\w+\.md)`", text)
    assert pages and all((ROOT / page).exists() for page in pages)
    others = re.findall(r"\]\((\w+\.ipynb)\)", text)
    assert set(others) == set(COURSE) - {name}
