"""The guides' code: what it names exists, the README's lines run, links lead somewhere.

Names are looked up from a few words that mean one thing in all guides: `ek`, `model`,
`train`, `detections`, and our public functions by themselves. Keywords of a call must
be arguments of what is called. What no such word begins is not checked.
"""

import ast
import contextlib
import dataclasses
import importlib.util
import inspect
import pathlib
import re

import keras
import numpy as np
import pytest
from support.tiny import tiny_model
from support.tiny_run import MODEL_CONFIG

import effdet_keras as ek
from effdet_keras.export.registry import OPTIONS
from effdet_keras.extras.tfod.preprocessing import STEPS
from effdet_keras.train.matching import IoUMatching
from effdet_keras.weights.assign import LoadReport, NewWeights

pytestmark = pytest.mark.tensorflow  # `ek.data`, `ek.callbacks`

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "benchmarks" / "README.md",
    ROOT / "benchmarks" / "RESULTS.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
FILE_NAME = re.compile(
    r"[\w/.-]+\.(py|md|xml|bin|ya?ml|jsonl?|keras|h5|txt|jpg|png|tflite|onnx|html|pbtxt|"
    r"parquet|savedmodel|ncnn|ncnn\.param|ncnn\.bin|mnn|pte|mlpackage|rknn|hef)"
)
# Fields of a run, `--set matching.force=false`; `matching` alone is our module.
FIELDS_OF_RUNS = {f"matching.{f.name}" for f in dataclasses.fields(IoUMatching)}
PARTS = ("depthwise_kernel", "pointwise_kernel", "bias")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def name_of(page):
    """`docs/speed.md`: two pages are called README.md."""
    return page.relative_to(ROOT).as_posix()


def python_blocks(page):
    blocks = FENCE.findall(page.read_text())
    return [code for language, code in blocks if language == "python"]


def inline_code(page):
    codes = re.findall(r"`([^`\n]+)`", FENCE.sub("", page.read_text()))
    known = FIELDS_OF_RUNS
    return [c for c in codes if not FILE_NAME.fullmatch(c) and c not in known]


def parsed(code):
    try:
        return ast.parse(code.replace(", ...", ""))  # "and so on"
    except SyntaxError:
        return None


@pytest.fixture(scope="module")
def words():
    """What the first word of a dotted name stands for."""
    model = tiny_model()
    model.compile()
    image = np.zeros((8, 8, 3), "uint8")
    dataset = ek.data.from_arrays([image], [[[0, 0, 4, 4]]], [[0]], ["cat"])
    datasets = ("train", "valid", "dataset", "first", "second")
    public = {name: getattr(ek.data, name) for name in ek.data.__all__}
    public |= {name: getattr(ek.callbacks, name) for name in ek.callbacks.__all__}
    public |= {name: getattr(ek, name) for name in ek.__all__}
    methods = ("from_preset", "from_archive", "load_pretrained", "export_checkpoint")
    methods += ("from_hub", "export_hub_module", "export", "freeze", "unfreeze")
    methods += ("compile", "fit", "batches", "detect", "evaluate", "load_weights")
    return {
        **public,
        **{name: getattr(model, name) for name in methods},
        **dict.fromkeys(datasets, dataset),
        **dict.fromkeys(("detections", "found"), ek.Detections([], [], [])),
        "ek": ek,
        "effdet_keras": ek,
        "keras": keras,
        "model": model,
        "config": model.config,
    }


def dotted(node):
    """`["ek", "data", "load"]` of `ek.data.load`, or None."""
    names = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else None


def look_up(names, words):
    """The object of a dotted name. Raises AttributeError if it does not exist."""
    value = words[names[0]]
    for name in names[1:]:
        if inspect.ismodule(value) and not hasattr(value, name):
            module = f"{value.__name__}.{name}"  # of an extra: imported when it is used
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(module)
        value = getattr(value, name)
    return value


def keywords_of(function):
    """The keywords that a function takes, those it passes on included."""
    parameters = inspect.signature(function).parameters
    names = set(parameters)
    if getattr(function, "__name__", "") in ("from_preset", "from_hub"):
        names |= set(ek.EfficientDetConfig.__dataclass_fields__)
    if getattr(function, "__name__", "") == "fine_tune":
        names |= set(ek.RunConfiguration.__dataclass_fields__)
    if getattr(function, "__name__", "") == "compile":
        names |= set(ek.Recipe.__dataclass_fields__)
    if function is ek.augment.PreprocessingStep:
        names |= {field for _, fields in STEPS.values() for field in fields}
    if getattr(function, "__name__", "") == "export":
        names |= set(OPTIONS)
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        name = getattr(function, "__name__", "")
        passed_on = {"fit": keras.Model.fit, "evaluate": keras.Model.evaluate}
        passed_on["train_on_batch"] = keras.Model.train_on_batch
        passed_on["test_on_batch"] = keras.Model.test_on_batch
        passed_on["batches"] = ek.data.DetectionDataset.batches
        if name in passed_on:
            names |= set(inspect.signature(passed_on[name]).parameters)
    return names


def problems(tree, words):
    """What the code names that does not exist, and how many names were looked up."""
    found, checked = set(), 0
    for node in ast.walk(tree):
        names = dotted(node.func if isinstance(node, ast.Call) else node)
        if not names or names[0] not in words:
            continue
        checked += 1
        try:
            value = look_up(names, words)
        except AttributeError:
            found.add(f"there is no {'.'.join(names)}")
            continue
        is_ours = getattr(value, "__module__", "").startswith("effdet_keras")
        if isinstance(node, ast.Call) and is_ours:
            known = keywords_of(value)
            given = [word.arg for word in node.keywords if word.arg is not None]
            found |= {
                f"{'.'.join(names)} takes no {name!r}"
                for name in given
                if name not in known
            }
    return sorted(found), checked


def is_installed(module):
    """False for a package that pages speak of and tests do not need: MediaPipe."""
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def imported_names(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and is_installed(node.module):
            module = __import__(node.module, fromlist=["x"])
            for alias in node.names:
                yield node.module, alias.name, hasattr(module, alias.name)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_the_code_names_exists(page, words):
    for code in python_blocks(page):
        tree = ast.parse(code)  # a block that does not compile fails here
        assert problems(tree, words)[0] == []
        missing = [name for *name, exists in imported_names(tree) if not exists]
        assert missing == []
    for code in inline_code(page):
        tree = parsed(code)
        if tree is None:
            assert not code.startswith(("ek.", "effdet_keras.", "model.")), code
        else:
            assert problems(tree, words)[0] == []


def test_the_check_sees_names_keywords_and_imports_that_do_not_exist(words):
    def found(code):
        return problems(ast.parse(code), words)[0]

    assert found("ek.data.load('DATA', split='train')") == []
    assert found("ek.data.from_nowhere('DATA')") == ["there is no ek.data.from_nowhere"]
    assert found("model.compile(ema=0.9)") == ["model.compile takes no 'ema'"]
    assert found("model.fit(train, epochs=3, validation_data=valid)") == []
    assert found("ek.EfficientDet.from_preset('d0', image_size=64)") == []
    assert found("from_preset('d0', find_image_size=64)") != []
    assert found("model.batches(train, 8, flip_probability=0, jitter=1)") == [
        "model.batches takes no 'jitter'"
    ]
    tree = ast.parse("from effdet_keras.network.anchors import nothing")
    assert [exists for *_, exists in imported_names(tree)] == [False]


def test_many_names_are_checked(words):
    """So that the test above cannot pass by finding nothing to look up."""
    count = 0
    for page in PAGES:
        codes = python_blocks(page) + inline_code(page)
        trees = filter(None, map(parsed, codes))
        count += sum(problems(tree, words)[1] for tree in trees)
    assert count > 300


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text()))
    for link in links:
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        file = page.parent / target if target else page
        assert file.exists(), link
        if anchor:
            assert anchor in anchors(file.read_text()), link


def anchors(text):
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), flags=re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in kept}


def test_the_report_in_weights_md_is_how_a_report_prints():
    head = [f"class_net/class-predict/{part}" for part in PARTS]
    report = LoadReport(
        path="efficientdet-d0",
        kind="TensorFlow checkpoint with TF1 names",
        model_name="efficientdet-d0",
        num_loaded=706,
        num_weights=709,
        num_averages=709,
        new=(
            NewWeights(
                "the file has 90 classes, and the model has 3",
                tuple(head),
                ("cat", "dog"),
            ),
        ),
        left_over=(),
        others=("global_step",),
    )
    assert f"```\n{report}\n```" in (ROOT / "docs" / "weights.md").read_text()


def test_the_lines_of_the_readme_run_on_small_images(tmp_path, monkeypatch):
    import tensorflow as tf

    data = tmp_path / "DATA"
    ek.data.write_shapes(data, num_train=4, num_valid=2, image_size=64)
    image = (data / "valid" / "00001.jpg").read_bytes()
    (tmp_path / "street.jpg").write_bytes(image)
    monkeypatch.chdir(tmp_path)
    (code,) = python_blocks(ROOT / "README.md")
    assert "model.fit" in code
    # Published weights are of the whole model: the notebook's test loads them.
    small = code.replace(
        '"efficientdet-d0", weights="coco"', '"efficientdet-d0", **SMALL'
    )
    small = small.replace(
        "batch_size=8, epochs=50", "batch_size=2, epochs=1, verbose=0"
    )
    assert (small.count("SMALL"), small.count("epochs=1, ")) == (2, 1)
    names = {"SMALL": {"image_size": 64, **MODEL_CONFIG}}
    tf.config.run_functions_eagerly(True)  # two steps: tracing would take a minute
    try:
        exec(compile(ast.parse(small), "README.md", "exec"), names)
    finally:
        tf.config.run_functions_eagerly(False)
    assert (tmp_path / "found.png").exists()


def test_the_tests_that_the_guides_name_exist():
    named = {
        path
        for page in PAGES
        for path in re.findall(r"`(tests/[\w/]+\.py)`", page.read_text())
    }
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_what_the_changelog_names_exists(words):
    """But in the sections on what is gone, and where it went."""
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = re.split(r"^### ", text, flags=re.MULTILINE)
    current = [
        s for s in sections if not s.startswith(("A plain", "The house", "Removed"))
    ]
    codes = re.findall(r"`([^`]+)`", "".join(current))
    trees = [parsed(" ".join(code.split())) for code in codes]
    found = {name: problems(tree, words)[0] for name, tree in zip(codes, trees) if tree}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
