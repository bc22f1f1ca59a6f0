"""The tests themselves: where they lie, what they are called, what they come with."""

import ast
import pathlib

import pytest

TESTS = pathlib.Path(__file__).parent
GOLDEN = TESTS / "golden"
PACKAGE = TESTS.parent / "effdet_keras"
FILES = sorted(TESTS.rglob("*.py"))
# Packages that the extra `test` does not bring.
EXTRA_PACKAGES = {'"jax"', '"torch"', '"mediapipe"', "backend"}


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


def test_golden_files_are_few_and_say_where_they_come_from():
    files = [path for path in GOLDEN.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 15e6
    notes = "\n".join(path.read_text() for path in GOLDEN.glob("PROVENANCE-*.md"))
    for path in files:
        names = {path.name, *(f"{p.name}/" for p in path.relative_to(GOLDEN).parents)}
        if path.suffix in (".md", ".pyc") or path.name.startswith("extract_"):
            continue
        assert any(f"`{name}`" in notes for name in names), f"{path.name}: from where?"
