"""Elements of HTML and SVG, in which all text is escaped that is not `Markup`."""

import html


class Markup(str):
    """Text that is HTML already; all other text is escaped."""


def escaped(value):
    """A value as HTML."""
    return value if isinstance(value, Markup) else Markup(html.escape(str(value)))


def joined(*contents):
    """Contents after each other; those that are no `Markup` are escaped."""
    return Markup("".join(map(escaped, contents)))


def element(tag, *contents, **attributes):
    """An element of HTML."""
    given = "".join(
        f' {k.strip("_").replace("_", "-")}="{escaped(v)}"'
        for k, v in attributes.items()
    )
    return Markup(f"<{tag}{given}>{joined(*contents)}</{tag}>")
