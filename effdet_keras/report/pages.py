"""A whole page: no network, no scripts; light, dark and on paper; also on a phone."""

from __future__ import annotations

import base64
import html
import io

import numpy as np
from PIL import Image


def html_page(title, body):
    """Writes a page."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style></head>\n"
        f"<body>{body}</body></html>\n"
    )


_STYLE = """
:root { color-scheme: light dark; --text: #1c2430; --soft: #5b6675; --page: #f6f7f9;
  --card: #ffffff; --line: #dde1e7; --first: #2f6fde; --second: #d8372a;
  --mark: #1c2430; --error: #c62828; --warning: #a15c00; --note: #2e6b3a; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ee; --soft: #9aa5b4;
  --page: #14181e; --card: #1d232b; --line: #333c47; --first: #6fa3ff;
  --second: #ff7a6b; --mark: #e6e9ee; --error: #ff8a80; --warning: #ffc166;
  --note: #86d39a; } }
body { max-width: 1080px; margin: 2rem auto; padding: 0 1rem; color: var(--text);
  background: var(--page); font: 15px/1.5 system-ui, sans-serif; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2.2rem; } h3 { margin: 0 0 .6rem;
  font-size: 1rem; } p { margin: .3rem 0; }
.verdict { margin-top: 1rem; padding: .7rem 1rem; border-left: 5px solid;
  background: var(--card); font-weight: 600; }
.error { color: var(--error); } .warning { color: var(--warning); }
.note { color: var(--note); }
.badge { display: inline-block; min-width: 4.4em; font-size: .8rem; }
.kind { background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: .5rem .9rem; margin: .5rem 0; }
.kind summary { cursor: pointer; } .kind span { color: var(--soft); }
.kind ul { max-height: 24rem; overflow: auto; margin: .5rem 0 0; }
code { font-size: .88em; overflow-wrap: anywhere; }
figure { margin: 0; padding: .9rem; background: var(--card);
  border: 1px solid var(--line); border-radius: 6px; }
figcaption { color: var(--soft); font-size: .85rem; overflow-wrap: anywhere; }
.charts { display: grid; gap: .9rem;
  grid-template-columns: repeat(auto-fill, minmax(min(420px, 100%), 1fr)); }
.images { display: grid; gap: .7rem; margin: .5rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(336px, 100%), 1fr)); }
.images figure { padding: .4rem; }
img { display: block; max-width: 100%; height: auto; border-radius: 3px; }
svg { width: 100%; height: auto; display: block; font-size: 11px; }
svg text { fill: var(--soft); } svg .grid { stroke: var(--line); fill: none; }
svg .first { fill: var(--first); } svg .second { fill: var(--second); }
svg .dots { fill-opacity: .55; } svg .mark { stroke: var(--mark); stroke-width: 1.2; }
.legend { list-style: none; margin: .3rem 0; padding: 0; display: flex;
  flex-wrap: wrap; gap: .1rem .9rem; font-size: .85rem; overflow-wrap: anywhere; }
.legend li::before { content: ""; display: inline-block; width: 1.1em; height: 3px;
  margin-right: .4em; vertical-align: middle; background: var(--line-color); }
svg .line { fill: none; stroke: var(--line-color); stroke-width: 1.8; }
svg .point { fill: var(--line-color); }
svg .diagonal { stroke: var(--soft); stroke-dasharray: 4 4; fill: none; }
svg .cell { fill: var(--first); } svg .cell-text { fill: var(--text); }
.line0 { --line-color: #2f6fde; } .line1 { --line-color: #d8372a; }
.line2 { --line-color: #2e9d4f; } .line3 { --line-color: #c98a00; }
.line4 { --line-color: #9357d6; } .line5 { --line-color: #00a39a; }
.line6 { --line-color: #d04fa8; } .line7 { --line-color: #7d8794; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line);
  text-align: right; vertical-align: top; overflow-wrap: break-word; }
th:first-child, td:first-child, td.words { text-align: left; }
td.words { overflow-wrap: anywhere; }
td { font-variant-numeric: tabular-nums; } td.words { color: var(--soft); }
tr.all td { font-weight: 600; }
ul.findings { margin: .6rem 0; padding-left: 1.2rem; }
ul.findings li { margin: .3rem 0; }
.pair { display: flex; flex-wrap: wrap; gap: .4rem; }
.pairs { display: grid; gap: .7rem; margin: .5rem 0;
  grid-template-columns: repeat(auto-fill, minmax(min(336px, 100%), auto)); }
.pairs figure { padding: .4rem; }
.missed { color: var(--second); font-weight: 600; }
.found { color: var(--note); font-weight: 600; }
.right { color: var(--first); font-weight: 600; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem;
  background: var(--card); border: 1px solid var(--line); padding: .6rem .9rem; }
@media (max-width: 640px) {
  body { margin-top: 1rem; padding: 0 .6rem; } figure { padding: .5rem; }
  svg { font-size: 13px; } h1 { font-size: 1.5rem; }
  table.stacked thead { display: none; }
  table.stacked tr { display: flex; flex-wrap: wrap; gap: 0 1rem; padding: .4rem 0;
    border-bottom: 1px solid var(--line); }
  table.stacked td { border: 0; padding: .1rem 0; text-align: left; }
  table.stacked td:first-child { width: 100%; font-weight: 600; }
  table.stacked td[data-name]::before { content: attr(data-name) " ";
    color: var(--soft); } }
@media print { :root { color-scheme: light; --text: #000000; --soft: #444444;
    --page: #ffffff; --card: #ffffff; --line: #bbbbbb; --first: #2f6fde;
    --second: #d8372a; --mark: #000000; --error: #c62828; --warning: #8a4f00;
    --note: #1f5c2c; }
  body { max-width: none; margin: 0; font-size: 11pt;
    print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  figure, tr, .pair { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .kind ul { max-height: none; } }
"""


# --- Images inside a page: small enough to be shown pixel by pixel, also on a phone.

# Pixels of a shown image's longer side. The page shows it at this size, not smaller:
# the names of classes are drawn in it.
SHOWN_SIDE = 320


def shrunk(image):
    """Makes an image as small as it is shown; a smaller one stays as it is.

    Returns:
        `(image, scale)`: uint8 array `[h, w, 3]`; float, by which boxes in pixels of
        the given image are multiplied.
    """
    scale = min(SHOWN_SIDE / max(image.shape[:2]), 1.0)
    size = [max(1, round(side * scale)) for side in image.shape[:2]]
    return np.asarray(Image.fromarray(image).resize(size[::-1])), scale


def fitted(image):
    """Makes an image as large as it is shown: smaller, or 2, 3, ... times larger."""
    factor = SHOWN_SIDE // max(image.shape[:2])
    if factor < 2:
        return shrunk(image)
    size = image.shape[1] * factor, image.shape[0] * factor
    enlarged = Image.fromarray(image).resize(size, Image.Resampling.BICUBIC)
    return np.asarray(enlarged), float(factor)


def image_tag(image, name):
    """Writes an image, `[H, W, 3]`, as HTML, with its pixels inside."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=85)
    data = base64.b64encode(file.getvalue()).decode()
    height, width = image.shape[:2]
    return (
        f'<img alt="{html.escape(name)}" width="{width}" height="{height}" '
        f'src="data:image/jpeg;base64,{data}">'
    )


def figure(shown, name, words=""):
    """Writes what is shown of an image, over its name and some words."""
    return (
        f"<figure>{shown}<figcaption><code>{html.escape(name)}</code> "
        f"{html.escape(words)}</figcaption></figure>\n"
    )


def pair(images, name):
    """Writes images of one name side by side; `images` is from title to image."""
    drawn = "".join(
        f"<div><small>{title}</small>{image_tag(image, f'{title} of {name}')}</div>"
        for title, image in images.items()
    )
    return f'<div class="pair">{drawn}</div>'


def gallery(figures):
    """Writes figures beside each other; an empty text if there are none."""
    figures = "".join(figures)
    return f'<div class="images">{figures}</div>' if figures else ""
