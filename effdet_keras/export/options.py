"""The options of a writer, read from its source text instead of by importing it.

The writer's signature is the only place that names them:

- the annotation is the type: `int`, `float`, `bool`, `str`, or `Literal["a", "b"]` for
  choices, each also with `| None`;
- any other annotation, such as that of a dataset, is an option that a command line
  cannot give as it is: its `type` is None;
- the default is a literal;
- the entry in the docstring's `Args` is the help.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
import re
from typing import Any

_PLAIN_TYPES: dict[str, type] = {t.__name__: t for t in (int, float, bool, str)}


@dataclasses.dataclass(frozen=True)
class WriterOption:
    """One option of a format, as its writer's signature has it.

    Attributes:
        name: string, of the keyword argument.
        type: `int`, `float`, `bool` or `str`; None for an object that a command line
            cannot give as it is, such as a dataset.
        choices: tuple of the values allowed; empty for any.
        default: the default value.
        help: string, the text of the docstring, in one line.
    """

    name: str
    type: type | None
    choices: tuple[Any, ...]
    default: Any
    help: str

    @property
    def summary(self) -> str:
        """The first sentence of `help`, without its full stop."""
        return re.split(r"\.(?:\s|$)|;\s", self.help, maxsplit=1)[0]


def read_options(address: str) -> tuple[WriterOption, ...]:
    """The keyword-only arguments of a function, without importing its module.

    Args:
        address: string, `module:function`. The module's packages are imported.

    Returns:
        Tuple of `WriterOption`, in the order of the signature.

    Example:
        >>> options = read_options("effdet_keras.export.onnx.write:write_onnx")
        >>> options[0].name, options[0].choices
        ('outputs', ('detections', 'raw'))
    """
    module, _, name = address.partition(":")
    function = next(
        node
        for node in ast.parse(_source_of(module)).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    texts = _argument_texts(ast.get_docstring(function) or "")
    arguments = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return tuple(
        _option(argument, default, texts.get(argument.arg, ""))
        for argument, default in arguments
    )


def _source_of(module: str) -> str:
    """The text of a module, found but not imported; its packages are empty."""
    loader: Any = importlib.util.find_spec(module).loader  # type: ignore[union-attr]
    return loader.get_source(module)


def _option(argument: ast.arg, default: ast.expr | None, text: str) -> WriterOption:
    kind, choices = _type_of(argument.annotation)
    return WriterOption(
        name=argument.arg,
        type=kind,
        choices=choices,
        default=None if default is None else ast.literal_eval(default),
        help=text,
    )


def _type_of(annotation: ast.expr | None) -> tuple[type | None, tuple[Any, ...]]:
    """The plain type and the choices that an annotation names."""
    if isinstance(annotation, ast.BinOp):  # `X | None`
        return _type_of(annotation.left)
    if isinstance(annotation, ast.Name):
        return _PLAIN_TYPES.get(annotation.id), ()
    if (
        isinstance(annotation, ast.Subscript)
        and isinstance(annotation.value, ast.Name)
        and annotation.value.id == "Literal"
    ):
        value = ast.literal_eval(annotation.slice)
        choices = value if isinstance(value, tuple) else (value,)
        return type(choices[0]), choices
    return None, ()


def _argument_texts(docstring: str) -> dict[str, str]:
    """What the section `Args` of a docstring says of each name, in one line each."""
    section = re.search(r"^Args:\n((?:[ ]+.*\n|\n)+)", docstring + "\n", re.MULTILINE)
    body = inspect.cleandoc(section[1]) if section else ""
    texts = {}
    for entry in re.split(r"\n(?=\S)", body):
        names, _, text = entry.partition(": ")
        for name in names.split(", "):
            texts[name] = " ".join(text.split())
    return texts
