"""Each `effdet-keras ...` line of the guides has only commands and flags that exist.

A line is parsed as the program parses it; inline code, or a line with "...", may leave
out what is required. The flags that prose names by themselves exist, too.
"""

import pathlib
import re
import shlex
from typing import NamedTuple

import pytest
from support.quoted_messages import FENCE

from effdet_keras import cli

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
COMMAND = "effdet-keras"
_LINE = re.compile(
    rf"(?:^|[;&|(!] *|exec |srun ) *{COMMAND} ([^\n]*?)(?=&& {COMMAND}|$)", re.MULTILINE
)
_FLAG = re.compile(r"--[a-z][\w-]*")
# Pages with many flags of other programs, and one with flags that are gone.
_COMPARE = (
    "data.md",
    "migrating_from_automl.md",
    "migrating_from_tfod.md",
    "CHANGELOG.md",
)
_OTHERS = {"--recipes": "benchmarks/scorecard.py", "--hub_module_url": "google/automl"}


class Line(NamedTuple):
    """A command line of a page: what stands behind the name of the program."""

    text: str
    is_whole: bool  # whether all that is required must be there


def command_lines(page_text):
    """The `Line`s of a page."""
    blocks = [code for _, code in FENCE.findall(page_text)]
    for code in blocks:
        for line in _LINE.findall(code.replace("\\\n", " ")):
            yield Line(line, is_whole="..." not in line)
    for code in inline_codes(page_text):
        for line in _LINE.findall(code):
            yield Line(line, is_whole=False)


def inline_codes(page_text):
    codes = re.findall(r"`([^`]+)`", FENCE.sub("", page_text))
    return [" ".join(code.split()) for code in codes]


def words_of(line):
    """The arguments of a command line, up to what the shell does with them."""
    words = [w for w in shlex.split(line.text, comments=True) if w != "..."]
    ends = [n for n, w in enumerate(words) if w in ("|", "&", "&&", ";", ">", "2>")]
    return words[: min(ends, default=None)]


def commands_of(parser):
    """The parser of each command, by name."""
    (action,) = (a for a in parser._actions if a.choices and not a.option_strings)
    return action.choices


def parses(line):
    """Whether the program takes a command line; else it prints why."""
    words, parser = words_of(line), cli._parser()
    if words == [] or words[0] == "COMMAND":
        return True
    if not line.is_whole:
        for command in commands_of(parser).values():
            for action in command._actions:
                action.required = False
                if action.option_strings and action.nargs is None:
                    action.nargs = "?"  # "`effdet-keras export --target`"
    try:
        parser.parse_args(words)
    except SystemExit as stop:
        return not stop.code
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_command_lines_of_a_page_can_be_parsed(page, capsys):
    wrong = []
    for line in command_lines(page.read_text(encoding="utf-8")):
        if not parses(line):
            wrong.append((line.text, capsys.readouterr().err.splitlines()[-1]))
    assert wrong == []


def test_many_command_lines_are_checked():
    lines = [line for page in PAGES for line in command_lines(page.read_text("utf-8"))]
    assert len(lines) > 100
    assert sum(line.is_whole for line in lines) > 50


def test_a_line_that_cannot_be_parsed_is_found(capsys):
    text = """
`effdet-keras eval --no-such-flag` and `effdet-keras train DATA`

```sh
effdet-keras train DATA  # a comment
exec effdet-keras train DATA --out runs/cats \\
  --epochs many
effdet-keras export ... --precision int9
effdet-keras merge parts found.json && effdet-keras paint
```
"""
    lines = list(command_lines(text))
    assert [line.text.split()[0] for line in lines if not parses(line)] == [
        "train",
        "train",
        "export",
        "paint",
        "eval",
    ]
    assert len(lines) == 7


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name not in _COMPARE], ids=lambda page: page.name
)
def test_flags_by_themselves_exist(page):
    flags = {"--help", "--version", *_OTHERS}
    for command in commands_of(cli._parser()).values():
        flags |= set(command._option_string_actions)
    codes = inline_codes(page.read_text(encoding="utf-8"))
    named = {flag for c in codes if c.startswith("--") for flag in _FLAG.findall(c)}
    assert sorted(named - flags) == []
