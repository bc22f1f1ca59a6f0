"""The public API is marked: listed, documented, typed, in the reference, used alone.

Public is what `effdet_keras.__all__` lists, what the `__all__` of its public modules
lists, what else the reference shows, by its path, and the methods and properties of
these classes that are defined by us.
"""

import ast
import importlib
import inspect
import json
import pathlib
import re

import pytest

import effdet_keras as ek

pytestmark = pytest.mark.tensorflow  # `ek.data`, `ek.callbacks`

ROOT = pathlib.Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
FENCE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MODULES = (
    "augment",
    "callbacks",
    "data",
    "errors",
    "matching",
    "metrics",
    "schedules",
    "visualize",
)

# What Keras calls, with signatures that Keras documents.
OF_KERAS = {
    "build",
    "call",
    "compute_output_shape",
    "compute_output_spec",
    "get_config",
    "from_config",
    "get_build_config",
    "build_from_config",
    "on_train_begin",
    "on_train_end",
    "on_epoch_begin",
    "on_epoch_end",
    "on_train_batch_begin",
    "on_train_batch_end",
    "on_test_begin",
    "on_test_end",
    "train_step",
    "test_step",
    "predict_step",
    "make_train_function",
    "make_test_function",
    "make_predict_function",
    "set_model",
    "set_params",
    "get_compile_config",
    "compile_from_config",
    "metrics",
    "set_weights",
    "get_weights",
    "get_state_tree",
    "set_state_tree",
    "stateless_compute_loss",
    "metrics_variables",
    "compute_loss_and_updates",
}

# Why each needs no example of its own.
WITHOUT_EXAMPLE = {
    "errors.*": "the package's first error, `EffDetError`, has one for all",
    "data.Record": "the fields are its docstring; `DetectionDataset` shows records",
    "data.load_splits": "the example of `data.load` has it",
    "extras.data_check.check.CheckReport": "`data.check` returns it",
    "extras.rate_test.LearningRates": "`find_learning_rate` returns it",
    "hub.from_hub.HubDetector": "`EfficientDet.from_hub` returns it",
    "runs.fine_tune.FineTuned": "`fine_tune` returns it",
    "weights.assign.NewWeights": "the example of `LoadReport` has it",
    **{
        f"data.write_{name}": f"the example of `data.from_{name}` writes and reads"
        for name in ("coco", "csv", "tfrecord", "voc", "yolo")
    },
}


def public_objects():
    """Name (`data.load`) to object of all public classes, functions and constants."""
    objects = {}
    for name in ek.__all__:
        value = getattr(ek, name)
        if name in MODULES:
            names = getattr(value, "__all__", ())
            objects |= {f"{name}.{x}": getattr(value, x) for x in names}
        else:
            objects[name] = value
    return objects


def public_methods(cls):
    """Name to function of the methods that this package defines, Keras' apart."""
    methods = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("effdet_keras"):
            continue
        for name, value in vars(base).items():
            if name.startswith("_") or name in OF_KERAS:
                continue
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            if isinstance(value, property):
                value = value.fget
            if inspect.isfunction(value):
                methods[name] = value
    return methods


def referenced():
    """The dotted paths that the pages of the reference show."""
    text = "\n".join(page.read_text() for page in sorted(REFERENCE.glob("*.md")))
    return re.findall(r"^::: effdet_keras\.([\w.]+)$", text, flags=re.MULTILINE)


def looked_up(path):
    """The object of a path: of a function `load` in a module `load`, the function."""
    owner, _, name = path.rpartition(".")
    try:
        return getattr(
            importlib.import_module(f"effdet_keras.{owner}".rstrip(".")), name
        )
    except ModuleNotFoundError:
        return getattr(looked_up(owner), name)


LISTED = public_objects()
SHOWN = {path: looked_up(path) for path in referenced()}
OBJECTS = {
    **{path: x for path, x in SHOWN.items() if not inspect.ismodule(x)},
    **LISTED,
}
CLASSES = {name: x for name, x in OBJECTS.items() if inspect.isclass(x)}
FUNCTIONS = {name: x for name, x in OBJECTS.items() if inspect.isfunction(x)}
CALLABLES = {
    **FUNCTIONS,
    **{
        f"{name}.{method}": function
        for name, cls in CLASSES.items()
        for method, function in public_methods(cls).items()
    },
}


def doc_of(name):
    owner, _, method = name.rpartition(".")
    if owner in CLASSES:
        return inspect.getdoc(getattr(CLASSES[owner], method))
    return inspect.getdoc(OBJECTS[name])


def test_public_modules_list_their_names():
    for name in MODULES:
        assert name in ek.__all__
        module = getattr(ek, name)
        assert len(set(module.__all__)) == len(module.__all__) > 0, name
        assert not [x for x in module.__all__ if x.startswith("_")]


@pytest.mark.parametrize("name", sorted({**CLASSES, **CALLABLES}))
def test_every_public_name_has_a_docstring(name):
    assert (doc_of(name) or "").strip()


@pytest.mark.parametrize("name", sorted({**CLASSES, **FUNCTIONS}))
def test_every_public_class_and_function_has_an_example(name):
    if name in WITHOUT_EXAMPLE or f"{name.partition('.')[0]}.*" in WITHOUT_EXAMPLE:
        return
    docs = [doc_of(name)]
    if name in CLASSES:
        methods = public_methods(CLASSES[name])
        docs += [doc_of(f"{name}.{method}") or "" for method in methods]
    assert any(">>> " in doc for doc in docs)


def missing_annotations(function):
    """Parameters without a type, and "return"; `self` and `cls` need none."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if parameters and parameters[0].name in ("self", "cls"):
        parameters = parameters[1:]
    missing = [x.name for x in parameters if x.annotation is x.empty]
    if signature.return_annotation is signature.empty:
        missing.append("return")
    return missing


@pytest.mark.parametrize("name", sorted(CALLABLES))
def test_every_public_signature_is_typed(name):
    assert missing_annotations(CALLABLES[name]) == []


def identity(name, value):
    """Constants are known by their name, the rest by what it is."""
    return id(value) if callable(value) or inspect.ismodule(value) else name


def test_every_public_name_is_in_the_reference_once():
    assert len(referenced()) == len(SHOWN)
    shown = {identity(path, x) for path, x in SHOWN.items()}
    for module in filter(inspect.ismodule, SHOWN.values()):
        shown |= {id(getattr(module, name)) for name in module.__all__}
    lost = [
        name
        for name, value in LISTED.items()
        if name != "__version__" and identity(name, value) not in shown
    ]
    assert lost == []


def test_users_need_few_names():
    assert len(LISTED) <= 80  # nine of them read the exports of one tool each


def test_the_methods_that_users_call_are_seen():
    """So that the tests above cannot pass by finding nothing."""
    methods = set(public_methods(ek.EfficientDet))
    assert {"compile", "fit", "evaluate", "predict", "freeze", "detect"} <= methods
    assert len(CLASSES) > 20
    assert len(CALLABLES) > 100


def code_of(path):
    """The pieces of Python of a page, a script or a notebook."""
    if path.suffix == ".py":
        return [path.read_text()]
    if path.suffix == ".ipynb":
        cells = json.loads(path.read_text())["cells"]
        codes = ["".join(x["source"]) for x in cells if x["cell_type"] == "code"]
        magic = re.compile(r"^\s*[%!].*$", flags=re.MULTILINE)
        return [magic.sub("", code) for code in codes]
    return FENCE.findall(path.read_text())


def inner_uses(code):
    """What code takes from the package that is not public."""
    uses = []
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if (node.module or "").partition(".")[0] == "effdet_keras":
                inner = node.module.removeprefix("effdet_keras").lstrip(".")
                names = [f"{inner}.{alias.name}".lstrip(".") for alias in node.names]
                uses += [name for name in names if name not in SHOWN]
        elif isinstance(node, ast.Import):
            uses += [
                alias.name.removeprefix("effdet_keras.")
                for alias in node.names
                if alias.name.startswith("effdet_keras.")
            ]
        elif isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            match = re.fullmatch(r"(?:ek|effdet_keras)\.(\w+(?:\.\w+)?)", text)
            if match:
                uses.append(match[1])
    return [use for use in uses if not is_public(use)]


def is_public(use):
    """Of `data`, `data.load`, `EfficientDet`, `EfficientDet.from_preset`."""
    first, _, second = use.partition(".")
    if first not in ek.__all__:
        return False
    if not second:
        return True
    if first in MODULES:
        return second in getattr(getattr(ek, first), "__all__", ())
    return not second.startswith("_") and hasattr(getattr(ek, first), second)


USERS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*.py")),
    *sorted((ROOT / "examples").glob("*.ipynb")),
]


@pytest.mark.parametrize("path", USERS, ids=lambda path: path.name)
def test_docs_and_examples_use_public_names_only(path):
    for code in code_of(path):
        assert inner_uses(code) == []
