"""The tests themselves: where they lie, what they are called, what they come with."""

import ast
import pathlib
import re

import numpy as np
import pytest
from support.arrays import assert_equal

TESTS = pathlib.Path(__file__).parent
GOLDEN = TESTS / "golden"
PACKAGE = TESTS.parent / "effdet_keras"
FILES = sorted(TESTS.rglob("*.py"))
# Packages that the extra `test` does not bring.
EXTRA_PACKAGES = {'"jax"', '"torch"', '"mediapipe"', "backend"}
EXTRA_PACKAGES |= {'"datasets"', '"datumaro"', '"ncnn"', '"pnnx"', '"executorch"'}
EXTRA_PACKAGES |= {'"coremltools"', '"MNN"'}
FOLDERS = sorted({path.parent for path in TESTS.rglob("test_*.py")})
# A line that imports, be it of the file or of a program in one of its strings.
IMPORT = re.compile(r"^\s*(?:from|import) +([.\w]+)", re.MULTILINE)


def marked(path, marker):
    """The names of the tests of a file that carry a marker themselves."""
    return [
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and f"pytest.mark.{marker}" in map(ast.unparse, node.decorator_list)
    ]


def test_folders_are_those_of_the_package():
    """But for `faults`: what goes wrong there goes through many rooms."""
    for folder in {path.parent for path in TESTS.rglob("test_*.py")}:
        if folder != TESTS / "faults":
            assert (PACKAGE / folder.relative_to(TESTS)).is_dir(), folder


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_needs_an_extra_package_is_marked_for_ci(path):
    """`.ci/run` runs what is marked in an environment that has the packages."""
    tree = ast.parse(path.read_text())
    needed = {
        ast.unparse(call.args[0]).replace("'", '"')
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) == "pytest.importorskip"
    }
    if needed & EXTRA_PACKAGES:
        assert "mark.extra_packages" in path.read_text(), needed


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_folder_has_a_smoke_test(folder):
    """`pytest -m smoke` runs every part of the package once."""
    files = sorted(folder.glob("test_*.py"))
    smoke = {name for path in files for name in marked(path, "smoke")}
    slow = {name for path in files for name in marked(path, "slow")}
    assert smoke, f"mark a test of {folder} that takes seconds: @pytest.mark.smoke"
    assert not smoke & slow, "a smoke test takes seconds"


def test_every_equality_is_a_slow_test_and_ci_runs_them():
    """The other tests have their time in the README's command, and need no marker."""
    for path in FILES:
        slow = set(marked(path, "slow"))
        assert set(marked(path, "equality")) <= slow, path
    ci = (TESTS.parent / ".ci" / "run").read_text()
    assert "pytest -n auto -m equality" in ci


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_tests_share_is_in_support(path):
    """A test that imports from another one breaks when that one is moved or renamed."""
    modules = IMPORT.findall(path.read_text())
    assert [name for name in modules if is_of_a_test(name)] == []


def is_of_a_test(module):
    """Whether it lies in `tests`, but not in `tests/support`."""
    if module.startswith(("tests.", ".")):
        return True
    parts = module.split(".")
    if any(part.startswith("test_") or part == "conftest" for part in parts):
        return True
    return parts[0] != "support" and TESTS.joinpath(*parts).with_suffix(".py").exists()


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("train.test_refused_batches", True),
        ("test_labels", True),
        ("tests.support.tiny", True),  # by its path: it would be loaded a second time
        (".test_labels", True),
        ("conftest", True),
        ("faults.conftest", True),
        ("golden.refweights", True),
        ("support.tiny", False),
        ("effdet_keras.train.losses", False),
        ("pytest", False),
    ],
)
def test_modules_of_tests_are_told_from_others(module, expected):
    assert is_of_a_test(module) == expected


def test_there_is_one_assertion_of_equal_arrays():
    definition = re.compile(r"^\s*def assert_equal\b", re.MULTILINE)
    found = [path for path in FILES if definition.search(path.read_text())]
    assert found == [TESTS / "support" / "arrays.py"]


def test_equal_arrays_have_one_form_and_the_same_values():
    nan = np.float32(["nan", 1.0])
    assert_equal([nan, np.arange(3)], [nan.copy(), [0, 1, 2]])
    assert_equal({"a": [1.0]}, {"a": [1.09]}, atol=0.1)
    assert_equal({"a": [100.0]}, {"a": [101.0]}, rtol=0.01)
    for first, second, message in (
        ({"a": nan}, {"b": nan}, "2 arrays are in one group only: ['a', 'b']"),
        ([nan], [nan, nan], "1 arrays are in one group only: [1]"),
        ([[1.0]], [1.0], "0: shapes (1,) and ()"),
        ({"a": [1.0], "b": [2.0]}, {"a": [1.0], "b": [2.5]}, "['b: by up to 0.5']"),
        ([np.float32(1.0)], [np.float32(1.0) + np.float32(2**-23)], "1 of 1 differ"),
    ):
        with pytest.raises(AssertionError, match=re.escape(message)):
            assert_equal(first, second)
    with pytest.raises(AssertionError, match="by up to 0.2"):
        assert_equal({"a": [1.0]}, {"a": [1.2]}, rtol=0.01, atol=0.1)


def test_the_files_that_conftest_names_are_there():
    """A name of a file that was moved would leave its cases on every backend."""
    tree = ast.parse((TESTS.parent / "conftest.py").read_text())
    (names,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) == "TESTS_OF_CASES"
    )
    assert [name for name in names if not (TESTS / name).is_file()] == []


def test_golden_files_are_few_and_say_where_they_come_from():
    files = [path for path in GOLDEN.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 15e6
    notes = "\n".join(path.read_text() for path in GOLDEN.glob("PROVENANCE-*.md"))
    for path in files:
        names = {path.name, *(f"{p.name}/" for p in path.relative_to(GOLDEN).parents)}
        if path.suffix in (".md", ".pyc") or path.name.startswith("extract_"):
            continue
        assert any(f"`{name}`" in notes for name in names), f"{path.name}: from where?"
