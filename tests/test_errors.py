"""Every error of the package is also the built-in error that Python code expects."""

import ast
import pathlib

import pytest

import effdet_keras as ek
from effdet_keras import errors

PACKAGE = pathlib.Path(errors.__file__).parent


@pytest.mark.smoke
@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_is_a_built_in_error_too(name):
    error = getattr(errors, name)
    assert issubclass(error, errors.EffDetError) and error.__doc__
    if error is not errors.EffDetError:
        builtin = error.__bases__[1]
        assert builtin.__module__ == "builtins"
        with pytest.raises(builtin, match="cure"):
            raise error("the cure")


def test_a_mistake_of_the_caller_is_one_of_them():
    with pytest.raises(ek.errors.EffDetError, match="efficientdet-d9"):
        ek.EfficientDet.from_preset("efficientdet-d9")


def test_the_package_raises_no_bare_built_in_error_for_what_a_user_gives():
    """The command would call it a bug. `KeyError`, `AttributeError` are protocols."""
    replaced = {"ValueError", "TypeError", "RuntimeError", "ImportError"}
    replaced |= {base.__name__ for base in (ArithmeticError, FloatingPointError)}
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
        and node.exc.func.id in replaced
    ]
    assert not found
