"""An extension of Griffe: headings of our docstrings that Griffe has no name for.

`Example:` becomes `Examples:`, which it shows as code; `Call arguments:`, what the
`call` of a layer or model takes, becomes a table of arguments with that title.
"""

import griffe

_HEADINGS = {
    "Example:": "Examples:",
    "Call arguments:": "Args: Call arguments",
}


class Headings(griffe.Extension):
    """Renames the headings before the docstrings are parsed."""

    def on_object(self, *, obj, **kwargs):
        if obj.docstring is not None:
            lines = obj.docstring.value.split("\n")
            obj.docstring.value = "\n".join(_HEADINGS.get(x.rstrip(), x) for x in lines)
