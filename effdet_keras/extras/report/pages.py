"""HTML pages in one file each: no network, no scripts; for light, dark and print."""

from __future__ import annotations

import base64
import functools
import html
import io
import pathlib
import string

import numpy as np
from PIL import Image

from effdet_keras.visualize import draw_class_map

# --- Elements of HTML and SVG. All text is escaped unless it is `Markup`.


class Markup(str):
    """Text that is already HTML; all other text is escaped."""


def escaped(value):
    return value if isinstance(value, Markup) else Markup(html.escape(str(value)))


def concat_markup(*contents):
    """Concatenates contents, and escapes those that are not `Markup`."""
    return Markup("".join(map(escaped, contents)))


def element(tag, *contents, **attributes):
    given = "".join(
        f' {k.strip("_").replace("_", "-")}="{escaped(v)}"'
        for k, v in attributes.items()
    )
    return Markup(f"<{tag}{given}>{concat_markup(*contents)}</{tag}>")


# --- Pages and their parts.


def render(name, **values):
    """Fills a template file; a block (between empty lines) needs all its values."""
    given = {key: escaped(value) for key, value in values.items() if value}
    blocks = (x for x in _blocks(name) if given.keys() >= {*x.get_identifiers()})
    return Markup("\n".join(block.substitute(given) for block in blocks))


@functools.cache
def _blocks(name):
    text = pathlib.Path(__file__).with_name(name).read_text(encoding="utf-8")
    return [string.Template(block) for block in text.split("\n\n")]


def html_page(title, body):
    """Returns a page; `body` is HTML."""
    return render("page.html", title=title or "-", body=Markup(body))


def items(texts):
    return concat_markup(*(element("li", text) for text in texts))


def words_table(rows):
    """Returns a table with rows of a name, perhaps a number, and text."""
    table = []
    for *first, words in rows:
        cells = (element("td", cell) for cell in first)
        table.append(element("tr", *cells, element("td", words, class_="words")))
    return element("table", *table)


def stacked_table(table, last_is_all=False):
    """Returns a table with column names, which becomes a list on a phone."""
    columns, *rows = table
    head = element("tr", *(element("th", name) for name in columns))
    body = []
    for first, *rest in rows:
        is_all = last_is_all and len(body) == len(rows) - 1
        cells = zip(columns[1:], rest)
        others = (element("td", cell, data_name=name) for name, cell in cells)
        attributes = {"class_": "all"} if is_all else {}
        body.append(element("tr", element("td", first), *others, **attributes))
    parts = element("thead", head), element("tbody", *body)
    return element("table", *parts, class_="stacked")


# --- Images in a page: small enough to be shown at full resolution, even on a phone.

# The longer side of a shown image in pixels. The page never shows it smaller, because
# the names of classes are drawn into it.
SHOWN_SIDE = 320


def shrunk(image, longest=SHOWN_SIDE):
    """Returns an image `[h, w, 3]` in the size for display, and the scale of boxes."""
    scale = min(longest / max(image.shape[:2]), 1.0)
    size = [max(1, round(side * scale)) for side in image.shape[:2]]
    return np.asarray(Image.fromarray(image).resize(size[::-1])), scale


def fitted(image):
    """Does the same, but enlarges a small image by an integer factor."""
    factor = SHOWN_SIDE // max(image.shape[:2])
    if factor < 2:
        return shrunk(image)
    size = image.shape[1] * factor, image.shape[0] * factor
    enlarged = Image.fromarray(image).resize(size, Image.Resampling.BICUBIC)
    return np.asarray(enlarged), float(factor)


def colored(image, class_map, names):
    """Returns an image with a class map as colors over it, if there is a class map."""
    if class_map is None:
        return image
    resized = Image.fromarray(np.asarray(class_map, np.uint8)).resize(
        image.shape[1::-1], Image.Resampling.NEAREST
    )
    return draw_class_map(image, resized, names)


def image_tag(image, name):
    """Returns an `img` element for an image `[H, W, 3]`, with the pixels in it."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=85)
    data = base64.b64encode(file.getvalue()).decode()
    height, width = image.shape[:2]
    return Markup(
        f'<img alt="{html.escape(name)}" width="{width}" height="{height}" '
        f'src="data:image/jpeg;base64,{data}">'
    )


def figure(shown, name, words=""):
    """Returns a figure with the image's name and some text as the caption."""
    caption = element("figcaption", element("code", name), " ", words)
    return element("figure", shown, caption)


def pair(images, name):
    """Returns images side by side; `images` is a dict from title to image."""
    drawn = (
        element("div", element("small", title), image_tag(image, f"{title} of {name}"))
        for title, image in images.items()
    )
    return element("div", *drawn, class_="pair")


def gallery(figures):
    """Returns figures side by side; empty text if there are none."""
    figures = [figure for figure in figures if figure]
    return element("div", *figures, class_="images") if figures else Markup()
