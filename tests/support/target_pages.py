"""The pages of export targets: their commands and programs."""

import pathlib
import re

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def page_of(target):
    """The text of a target's page."""
    return (DOCS / f"target_{target.replace('-', '_')}.md").read_text("utf-8")


def blocks_of(target, language):
    """The code blocks of a target's page that are in a language."""
    pattern = rf"^```{language}\n(.*?)^```$"
    return re.findall(pattern, page_of(target), re.DOTALL | re.MULTILINE)


def commands_of(target):
    """The shell commands of a target's page."""
    return [line for block in blocks_of(target, "sh") for line in block.splitlines()]
