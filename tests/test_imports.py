"""The direction of imports, where they stand, and who may import TensorFlow."""

import ast
import functools
import importlib
import pathlib
import re

import pytest
from support import programs

from effdet_keras import cli
from effdet_keras._internal.extras import extra

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "effdet_keras"
TYPING = ("TYPE_CHECKING", "typing.TYPE_CHECKING")

# A part may import itself and the rows above its own (docs/architecture.md). A file is
# of the part with the longest name that its path begins with.
ROWS = [
    ["_version", "errors", "labels"],
    ["_internal"],
    ["box_ops", "images"],
    ["network/config"],
    ["letterbox", "network", "augment", "visualize"],
    ["evaluate"],
    ["weights"],
    ["data"],
    ["train"],
    ["detect"],
    ["hub", "export"],
    ["callbacks"],
    ["model"],
    ["predictor", "runs"],
    ["cli"],
    ["extras"],
    ["__main__"],
]
# At the top of the file. Others that need it name it in `optional_imports`.
MAY_IMPORT_TENSORFLOW = {
    "train/steps/tensorflow.py",
    "train/functions/tensorflow.py",
    "train/replicas.py",
}
# Imports inside a function, besides those of optional packages and of a command's
# `run` (which keeps `--help` light), with the reason of each.
MAY_IMPORT_INSIDE = {
    # What a model or a dataset does once, if ever, is not read with its class.
    "model/export.py:export": ["effdet_keras.export.export_model"],
    "model/export.py:export_hub_module": ["effdet_keras.hub.export"],
    "data/dataset.py:batches": [
        "effdet_keras.data.pipeline.batches",
        "effdet_keras.data.pipeline.image_reader",
    ],
    "detect/detections.py:draw": ["effdet_keras.visualize"],
    "model/weights.py:from_preset": [
        "effdet_keras.weights.identify",
        "effdet_keras.weights.pretrained",
        "effdet_keras.weights.read_weights",
    ],
    "model/weights.py:from_archive": [
        "effdet_keras.weights.archive",
        "effdet_keras.weights.pretrained",
    ],
    "model/weights.py:load_pretrained": [
        "effdet_keras.weights.pretrained",
        "effdet_keras.weights.read_weights",
    ],
    "model/weights.py:push_to_hub": [
        "effdet_keras.weights.archive",
        "effdet_keras.weights.checkpoint_files",
    ],
    "model/weights.py:_fitted": ["effdet_keras.data.anchor_fit"],
    # A file of LiteRT, ONNX or OpenVINO is opened, and detects, without Keras.
    "predictor.py:load": ["effdet_keras.weights.archive"],
    "predictor.py:in_runtime": ["effdet_keras.export.check"],
    "predictor.py:evaluate": ["effdet_keras.detect.evaluate"],
    "predictor.py:_copied": ["effdet_keras.weights.archive"],
    "cli/files.py:open_live_model": ["effdet_keras.model.efficientdet"],
    "cli/files.py:load": ["effdet_keras.data.any_format"],
    "cli/files.py:found": ["effdet_keras.data.find_dataset"],
    # Of commands, as in their `run`.
    "extras/selftest/command.py:_read": [
        "effdet_keras.data.any_format",
        "effdet_keras.data.find_dataset",
        "effdet_keras.data.formats.reading",
        "effdet_keras.data.known_formats",
    ],
    "export/network.py:evaluated": ["effdet_keras.network.build"],
    "export/network.py:network_function": ["effdet_keras.network.computing"],
    "export/network_graph.py:network_graph": [
        "effdet_keras.network.build",
        "effdet_keras.network.computing",
    ],
    # A module becomes a model of this class: `hub` stands below `models`.
    "model/export.py:from_hub": ["effdet_keras.hub.from_hub"],
}


def command_files():
    """The files of the subcommands."""
    for module in cli.COMMANDS.values():
        module = extra(module) if isinstance(module, str) else module
        yield pathlib.Path(module.__file__).relative_to(PACKAGE)


def optional_packages():
    """Packages that not every user has: those of `OptionalModule("name", ...)`."""
    for node in ast.walk(tree_of("_internal/optional_imports.py")):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "OptionalModule":
            yield node.args[0].value.partition(".")[0]


def row_of(part):
    return next(i for i, row in enumerate(ROWS) if part in row)


def part_of(relative):
    """The part that a file is of, or None."""
    path = relative.with_suffix("").as_posix()
    parts = [p for row in ROWS for p in row if f"{path}/".startswith(f"{p}/")]
    return max(parts, key=len, default=None)


FILES = [path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*.py"))]
# Without the file of the public names, which are of all rows.
MODULES = [path for path in FILES if path.as_posix() != "__init__.py"]


def dotted(relative):
    pieces = ["effdet_keras", *relative.with_suffix("").parts]
    return ".".join(pieces[:-1] if pieces[-1] == "__init__" else pieces)


DOTTED = set(map(dotted, FILES))


@functools.cache
def tree_of(relative):
    return ast.parse((PACKAGE / relative).read_text())


def names_in(node):
    """Dotted names of one import statement, each with what is taken from it."""
    if isinstance(node, ast.Import):
        return [(alias.name, None) for alias in node.names]
    assert node.level == 0, "write imports in full"
    return [(node.module, alias.name) for alias in node.names]


def statements_run(node, functions=True):
    """Import statements of a file, without those that only type checkers see."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
            continue
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        is_typing = isinstance(child, ast.If) and ast.unparse(child.test) in TYPING
        if not is_typing and (functions or not is_function):
            yield from statements_run(child, functions)


def imported(relative):
    """Dotted names that a file imports, at any depth of its code."""
    for node in statements_run(tree_of(relative)):
        for module, name in names_in(node):
            yield f"{module}.{name}" if f"{module}.{name}" in DOTTED else module


def imports_inside(tree):
    """Each import inside a function: the function's name and the module."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    for module, _ in names_in(node):
                        yield function.name, module


def test_every_part_has_a_row():
    parts = {part_of(path) for path in MODULES}
    assert parts == {part for row in ROWS for part in row}
    assert None not in parts


def test_the_architecture_page_has_these_rows():
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", text, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(ROWS) + 1))
    for (number, parts), row in zip(rows, ROWS):
        assert set(re.findall(r"`([\w/]+?)/?`", parts)) == set(row), f"row {number}"


def test_imports_run_downwards_only():
    for relative in MODULES:
        part = part_of(relative)
        for name in imported(relative):
            package, _, inside = name.partition(".")
            if package == "effdet_keras" and inside and not is_extra(name):
                other = part_of(pathlib.PurePath(inside.replace(".", "/")))
                is_below = other == part or row_of(other) < row_of(part)
                assert is_below, f"{relative} imports {name}"


# Where the core uses extras, each a seam of docs/architecture.md: by an import inside
# the function that needs it, or by a table of module names.
SEAMS = {
    "_internal/extras.py",
    "_internal/keras_classes.py",  # classes that archives may name
    "_internal/processes.py",  # several processes
    "_internal/remote_path.py",
    "_internal/folder_lock.py",  # files at addresses
    "augment/__init__.py",  # learned policies, steps of the Object Detection API
    "callbacks/__init__.py",  # their public names
    "cli/__init__.py",  # subcommands
    "cli/eval_.py",  # `--follow`
    "cli/evaluate_files.py",  # columns of images, comparison, report
    "cli/predict.py",  # `--parts`
    "cli/train.py",  # `--find-rate`
    "data/__init__.py",  # their public names
    "data/known_formats.py",  # formats: TensorFlow Datasets
    "predictor.py",  # videos, tiles, test-time augmentation
    "evaluate/evaluation.py",  # kinds of errors, findings
    "export/export_model.py",  # where an int8 file loses most
    "export/litert.py",  # detection by operations that every runtime has
    "export/registry.py",  # targets of exports
    "export/saved_model.py",  # names of the Object Detection API
    "network/build.py",  # the segmentation head
    "model/export.py",  # `quantize_aware`
    "runs/configuration.py",  # adversarial images, rounding for int8
    "runs/fine_tune.py",  # `batch_size="auto"`, `time_budget`, report
    "runs/components.py",  # distillation, traces of steps
    "runs/requested.py",  # files of other trainers
    "train/compile_model.py",  # a moving average of the positives
    "train/recipe.py",  # adversarial images in files, the Object Detection API's
    "train/functions/jax.py",  # prediction in one of several processes
    "train/functions/tensorflow.py",  # prediction on several devices
    "model/weights.py",  # pipelines, other formats, the hub
    "weights/kinds/registry.py",  # kinds of weights
}


def test_the_core_uses_extras_in_the_functions_of_its_seams_alone():
    using = set()
    for path in MODULES:
        if path.parts[0] == "extras":
            continue
        at_once = [name for name in imported_at_once(path) if is_extra(name)]
        assert not at_once, f"{path} imports {at_once} at its top"
        if re.search(r"\bextra\(|effdet_keras\.extras\b|\"extras\.", read(path)):
            using.add(path.as_posix())
    assert using == SEAMS


def is_extra(name):
    return name.startswith("effdet_keras.extras")


def read(relative):
    return (PACKAGE / relative).read_text()


def test_imports_run_in_no_circle():
    graph = {dotted(relative): set(imported_at_once(relative)) for relative in FILES}
    assert circle_in(graph) is None


def imported_at_once(relative):
    """Modules of ours that are imported when this one is, without its packages."""
    for node in statements_run(tree_of(relative), functions=False):
        for module, name in names_in(node):
            if f"{module}.{name}" in DOTTED:
                yield f"{module}.{name}"
            elif module in DOTTED and module != dotted(relative):
                yield module


def circle_in(graph):
    """A path of modules that ends where it begins, or None."""
    done, path = set(), []

    def visit(name):
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return None
        path.append(name)
        found = next(filter(None, map(visit, sorted(graph[name]))), None)
        path.pop()
        done.add(name)
        return found

    return next(filter(None, map(visit, sorted(graph))), None)


def test_imports_stand_at_the_top_of_a_file():
    optional = set(optional_packages())
    for relative in MODULES:
        is_command = relative in command_files()
        for function, module in imports_inside(tree_of(relative)):
            place = f"{relative.as_posix()}:{function}"
            is_allowed = (
                (is_command and function == "run")
                or module.partition(".")[0] in optional
                or module in MAY_IMPORT_INSIDE.get(place, {})
                or (is_extra(module) and relative.as_posix() in SEAMS)
                or (is_extra(module) and relative.parts[0] == "extras")
            )
            assert is_allowed, f"{place} imports {module}"


def test_tensorflow_is_imported_where_it_may_be_and_nowhere_else():
    importing = {
        relative.as_posix()
        for relative in MODULES
        if any(name.split(".")[0] == "tensorflow" for name in imported(relative))
    }
    assert importing == MAY_IMPORT_TENSORFLOW


def test_the_places_that_ask_for_the_backend_are_those_of_the_document():
    page = (ROOT / "docs" / "architecture.md").read_text()
    (paragraph,) = re.findall(r"^- \*\*Few places ask.*?(?=^- )", page, re.M | re.S)
    named = set(re.findall(r"`([\w/]+\.py)`", paragraph)) - {"tests/test_imports.py"}
    asking = {
        path.as_posix()
        for path in MODULES
        if re.search(r"\bbackend\(\)|KERAS_BACKEND\W+\]", (PACKAGE / path).read_text())
    }
    assert asking == named


LAZY = [
    path for path in PACKAGE.rglob("__init__.py") if "lazy_names(" in path.read_text()
]


@pytest.mark.parametrize("path", LAZY, ids=str)
def test_type_checkers_see_the_names_that_are_imported_later(path):
    package = importlib.import_module(dotted(path.relative_to(PACKAGE)))
    blocks = [
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) in TYPING
    ]
    assert blocks
    for node in ast.walk(ast.Module(blocks, [])):
        for alias in getattr(node, "names", []):
            module = importlib.import_module(node.module)
            name = alias.asname or alias.name
            assert getattr(package, name) is getattr(module, alias.name)
            assert name in dir(package)


# What each use of the package imports, in a process of its own.
USES = {
    "import sys; sys.argv = ['effdet-keras']\n"
    "import effdet_keras as ek; ek.Predictor; ek.Detections; ek.metrics": False,
    "import effdet_keras, keras": True,
    "from effdet_keras.network.bifpn import BiFPN": True,
    "import effdet_keras as ek; ek.schedules": True,
}


# Keras loads the classes that were registered, and imports none by its path.
REGISTERED = ["EfficientDet", "Postprocess", "BiFPN", "AdvProp", "WeightedFusion"]
REGISTERED += ["WarmupCosine"]


@pytest.mark.parametrize("use", USES)
def test_all_classes_are_registered_as_soon_as_there_is_keras(use):
    code = (
        f"{use}\nimport sys\n"
        "if 'keras' in sys.modules:\n"
        "    find = sys.modules['keras'].saving.get_registered_object\n"
        f"    names = {REGISTERED}\n"
        "    print([find(f'effdet_keras>{name}').__name__ for name in names])\n"
        "print('keras' in sys.modules, 'tensorflow' in sys.modules)"
    )
    *registered, last = programs.run_alone("-c", code).splitlines()
    assert last == f"{USES[use]} {USES[use]}"
    assert registered == USES[use] * [str(REGISTERED)]


@pytest.mark.extra_packages
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
    programs.run_alone("-c", code, KERAS_BACKEND=backend)
