"""The package says what the guides quote of it (`support/quoted_messages.py`)."""

import pathlib

import pytest
from support.quoted_messages import (
    NOT_OURS,
    Quotation,
    is_said,
    package_texts,
    quotations,
    texts_of,
)

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_package_says_what_a_page_quotes(page):
    quoted = quotations(page.read_text(encoding="utf-8"))
    assert [quotation.text for quotation in quoted if not is_said(quotation)] == []


def test_many_quotations_are_checked():
    """So that the test above cannot pass by finding nothing to compare."""
    assert sum(len(quotations(page.read_text("utf-8"))) for page in PAGES) > 60
    assert len(package_texts()) > 3000
    prose = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [quoted for quoted in NOT_OURS if f'"{quoted}"' not in prose] == []


def test_pages_mark_what_they_quote_in_four_ways():
    page = """
A warning says "left out
or does not train on", and `"code in quotes"` is none; nor is "a word".

| message | what to do |
|---|---|
| no file | look |

| what | note |
|---|---|
| a cell | says "words of a message" |

```
ValueError: `size` must be above 4. Received: size=3
not printed by us
```

```text
  epoch 1    the largest error was found    0.5  out/pets.tflite
ty = (center of box - center of anchor) / height
```
"""
    assert sorted(quotation.text for quotation in quotations(page)) == [
        "`size` must be above 4. Received: size=3",
        "left out or does not train on",
        "no file",
        "the largest error was found",
        "words of a message",
    ]


def test_texts_have_gaps_where_values_are_filled_in():
    code = '''
def function(n):
    """Not a message."""
    print(f"{n} of {n:,} image{'' if n == 1 else 's'} found" + f" in {n}")
    print("one {} of two".format(n), "implicitly " "joined")
'''
    assert {
        ("", " of ", " images found in ", ""),
        ("", " of ", " image found in ", ""),
        ("one ", " of two"),
        ("implicitly joined",),
    } <= set(texts_of(code))
    assert ("Not a message.",) not in set(texts_of(code))


def test_a_message_that_the_package_does_not_have_is_found():
    for said in (
        "The labels of the model and those of the dataset mean",
        "Loading a TF-Hub module needs tensorflow_hub",
        "annotated as 480x640, is 240x320",
        "left 3, top 4, width 5, height 6",
        "there is no box in 30 images. ... Is this the right split",
    ):
        assert is_said(Quotation(said)), said
    for made_up in (
        "is another than any model was ever saved with",
        "none of the annotations has the id of an image",
        "annotated as 480x640, was stored as 240x320",
        "no box in 30 images. Ask somebody else",
        "a value that any field could have",
    ):
        assert not is_said(Quotation(made_up)), made_up
        assert not is_said(Quotation(made_up, is_printed=True)), made_up
