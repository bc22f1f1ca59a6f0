"""An extension of Griffe: headings of our docstrings that Griffe has no name for.

`Example:` becomes `Examples:`, which it shows as code. `Call arguments:`, what the
`call` of a layer or model takes, becomes a list of arguments with that title; and what
the class says it returns, which is what `call` returns, a paragraph.
"""

import griffe

_HEADINGS = {
    "Example:": "Examples:",
    "Call arguments:": "Args: Call arguments:",
}


class Headings(griffe.Extension):
    """Renames the headings before the docstrings are parsed."""

    def on_object(self, *, obj, **kwargs):
        if obj.docstring is None:
            return
        lines = obj.docstring.value.split("\n")
        lines = [_HEADINGS.get(line.rstrip(), line) for line in lines]
        if obj.is_class and "Returns:" in lines:
            lines = _with_paragraph(lines, lines.index("Returns:"))
        obj.docstring.value = "\n".join(lines)


def _with_paragraph(lines, start):
    """The lines with the section that begins at `start` as text."""
    end = start + 1
    while end < len(lines) and (not lines[end] or lines[end].startswith(" ")):
        end += 1
    text = [line.removeprefix("    ") for line in lines[start + 1 : end]]
    return [*lines[:start], "**Returns of a call:**", "", *text, *lines[end:]]
