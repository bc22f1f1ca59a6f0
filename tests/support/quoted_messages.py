"""The texts that the package can say, and the texts that the guides say it says.

A guide quotes a message in one of four ways, and each quotation is checked:

- a cell below the heading "message" or "it says" of a table;
- three words or more in double quotation marks in prose or in another cell;
- a line of a code block that begins with the name of an error, `ValueError: ...`;
- a line of a code block with the language `text`, which is what the package prints.

Numbers, names of files and the like may be any values, and "..." stands for words that
are left out. Other quotations than the package's are in `NOT_OURS`.
"""

from __future__ import annotations

import ast
import functools
import itertools
import pathlib
import re
from typing import NamedTuple

import effdet_keras

PACKAGE = pathlib.Path(effdet_keras.__file__).parent
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NOT_OURS = {
    "another task died": "JAX",
    "Transport endpoint is not connected": "the operating system",
    "As it is": "a cell of a table, in migrating_from_tfod.md",
}
_MESSAGE_COLUMNS = {"message", "it says"}
_ERROR_LINE = re.compile(r"^\s*(?:\w+\.)*\w*(?:Error|Warning): (.+)$")
_PLACEHOLDER = re.compile(r"\{[^{}]*\}|%[sdr]")  # of `format` and of `logging`
_MOST_VARIANTS = 64  # of one text with choices in it
_FEWEST_LETTERS = 4  # of a text that means something


# --- What the package can say.


@functools.cache
def package_texts():
    """Each text of the package as the tuple of its fixed pieces, in their order.

    Between two pieces stands a value that is filled in. Docstrings are no messages.
    """
    files = PACKAGE.rglob("*.py")
    texts = {text for file in files for text in texts_of(file.read_text("utf-8"))}
    return frozenset(text for text in texts if _letters(text) >= _FEWEST_LETTERS)


def texts_of(code):
    """The texts in Python code, as `package_texts` has them."""
    tree = ast.parse(code)
    docstrings = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if node not in docstrings:
            for pieces in _variants(node) or ():
                yield tuple(re.sub(r"\s+", " ", piece) for piece in pieces)


def _variants(node):
    """What an expression may be: lists of pieces; None where it is no text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [_PLACEHOLDER.split(node.value)]
    if isinstance(node, ast.IfExp):
        return _values(node.body) + _values(node.orelse)
    if isinstance(node, ast.JoinedStr):
        return _joined([_values(value) for value in node.values])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [_variants(node.left), _variants(node.right)]
        if sides != [None, None]:
            return _joined([side or _ANY for side in sides])
    return None


def _values(node):
    node = node.value if isinstance(node, ast.FormattedValue) else node
    return _variants(node) or _ANY


_ANY = [["", ""]]  # a value that is filled in


def _joined(parts):
    """All ways to put parts, each with its variants, one behind the other."""
    found = []
    for chosen in itertools.islice(itertools.product(*parts), _MOST_VARIANTS):
        pieces = [""]
        for first, *others in chosen:
            pieces[-1] += first
            pieces += others
        found.append(pieces)
    return found


# --- What the guides quote.


class Quotation(NamedTuple):
    """A text that a guide quotes; `is_printed` if it is a part of what was printed."""

    text: str
    is_printed: bool = False


def quotations(page_text):
    """Each `Quotation` of a page, in no order."""
    prose = FENCE.sub("", page_text)
    found = [*_message_cells(prose), *_in_quotation_marks(prose)]
    found = [Quotation(text) for text in found if text not in NOT_OURS]
    for language, code in FENCE.findall(page_text):
        for line in code.splitlines():
            if error := _ERROR_LINE.match(line):
                found.append(Quotation(error[1]))
            elif language == "text":
                cells = re.split(r"\s{2,}", line)
                found += [Quotation(c, is_printed=True) for c in cells if _is_text(c)]
    return found


def _message_cells(prose):
    is_message = []
    for line in prose.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("|"):
            is_message = []
        elif not is_message:
            is_message = [cell.lower() in _MESSAGE_COLUMNS for cell in cells]
        elif not set(line) <= set("|- :"):
            yield from itertools.compress(cells, is_message)


def _in_quotation_marks(prose):
    without_code = re.sub(r"`[^`]*`", "``", prose)
    for quoted in re.findall(r'"([^"]+)"', without_code):
        if len(quoted.split()) > 2:
            yield re.sub(r"\s+", " ", quoted)


def _is_text(cell):
    """Whether a printed cell is more than numbers, names, paths and objects."""
    if re.match(r"\S+ = ", cell):
        return False  # an equation
    cell = re.sub(r"\w+\(.*\)", "", cell)
    return len(re.findall(r"(?<![\w'/.=-])[a-z]{2,}(?![\w'/=-])", cell)) > 2


# --- Whether the package can say it.


def is_said(quotation):
    """Whether texts of the package, with values filled in, hold a quotation.

    Each of its sentences may be in another text. A printed one may stand between other
    words: what is printed is put together from more than one text.
    """
    texts = package_texts()
    if quotation.is_printed:
        texts = [("", *pieces, "") for pieces in texts]  # words before and behind it

    def is_held(quoted):
        quoted = quoted.strip(" .:,;`")
        return not quoted or any(_holds(pieces, quoted) for pieces in texts)

    parts = re.split(r"\.\.\.|…", re.sub(r"\s+", " ", quotation.text))
    sentences = [s for part in parts for s in re.split(r"(?<=[.?!:;]) ", part)]
    return all(map(is_held, parts)) or all(map(is_held, sentences))


def _holds(pieces, quoted):
    """Whether `quoted` is a part of the pieces with any values between them.

    More than half of its letters must be fixed text, or a value could be anything.
    """
    if any(quoted in piece for piece in pieces):
        return True
    enough = _letters(quoted) / 2
    for index, piece in enumerate(pieces[:-1]):
        for length in range(min(len(piece), len(quoted)) + 1):
            start, rest = quoted[:length], quoted[length:]
            fixed = not length or piece.endswith(start)
            if fixed and _letters(start) + _covered(pieces[index + 1 :], rest) > enough:
                return True
    return False


def _covered(pieces, quoted):
    """How many letters of `quoted`, which begins with a value, the pieces may be."""
    if not pieces:
        return 0
    piece, *others = pieces
    lengths = range(min(len(piece), len(quoted)), 0, -1)
    ends = (length for length in lengths if quoted.endswith(piece[:length]))
    best = _letters(piece[: next(ends, 0)])
    place = quoted.find(piece)
    if place >= 0:
        value, rest = quoted[:place], quoted[place + len(piece) :]
        is_text = (value,) in package_texts()  # such as the purpose of a package
        found = _letters(piece) + (_letters(value) if is_text else 0)
        best = max(best, found + _covered(others, rest))
    return best


def _letters(text):
    return sum(character.isalpha() for character in "".join(text))
