"""The direction of imports, and who may import TensorFlow."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).parents[1] / "effdet_keras"

# A part may import itself and the rows above its own (docs/architecture.md).
ROWS = [
    ["_version", "errors"],
    ["_internal"],
    ["category_ids", "config"],
    ["presets", "geometry", "images", "evaluation", "visualize"],
    ["detections", "losses", "layers", "data"],
    ["inspection", "backbones", "postprocess"],
    ["training", "weights"],
    ["inference"],
    ["export", "hub"],
    ["predictor"],
    ["models"],
    ["callbacks"],
    ["commands"],
    ["cli"],
]
MAY_IMPORT_TENSORFLOW = {
    "training/tensorflow_trainer.py",
    "layers/tensorflow_batch_norm.py",
    "export/network.py",
    "export/saved_model/write.py",
    "export/saved_model/run.py",
    "export/litert/model_file.py",
}


def row_of(part):
    return next(i for i, row in enumerate(ROWS) if part in row)


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        if relative.as_posix() != "__init__.py":  # the public names of all rows
            yield relative


def part_of(relative):
    return relative.parts[0].removesuffix(".py")


def imported(relative):
    """Dotted names that a file imports, at any depth; not those for types alone."""
    tree = ast.parse((PACKAGE / relative).read_text())
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative}: write imports in full"
            yield node.module
            if node.module == "effdet_keras":
                yield from (f"effdet_keras.{alias.name}" for alias in node.names)


def test_every_part_has_a_row():
    parts = {part_of(path) for path in modules()}
    assert parts == {part for row in ROWS for part in row}


@pytest.mark.parametrize("relative", list(modules()), ids=str)
def test_imports_run_downwards_only(relative):
    part = part_of(relative)
    for name in imported(relative):
        pieces = name.split(".")
        if pieces[0] != "effdet_keras" or len(pieces) == 1:
            continue
        other = pieces[1]
        assert other == part or row_of(other) < row_of(part), f"imports {name}"


@pytest.mark.parametrize("relative", list(modules()), ids=str)
def test_tensorflow_is_imported_only_where_it_may_be(relative):
    names = {name.split(".")[0] for name in imported(relative)}
    if "tensorflow" in names:
        allowed = {part_of(relative), relative.as_posix()} & MAY_IMPORT_TENSORFLOW
        assert allowed, "imports tensorflow"


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_package_imports_with_tensorflow_absent(backend):
    pytest.importorskip(backend)
    code = (
        "import sys; sys.modules['tensorflow'] = None\n"
        "import numpy as np, effdet_keras as ek\n"
        "model = ek.EfficientDet.from_preset('efficientdet-d0', image_size=64,"
        " max_level=6, num_classes=2)\n"
        "print(model.count_params())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
