"""Tables of a report, which become lists where the page is narrow."""

import html

from effdet_keras.evaluation.class_table import class_rows, row_of_all
from effdet_keras.evaluation.coco_metric import COCO_MEANINGS
from effdet_keras.evaluation.comparison import difference
from effdet_keras.evaluation.evaluation_text import (
    CLASS_COLUMNS,
    SLICE_COLUMNS,
    number,
    slice_cells,
)


def numbers_table(evaluation):
    """COCO's twelve numbers, Pascal VOC's, and the class-agnostic AP, with words."""
    rows = [
        (name, number(evaluation.coco[name], 4), meaning)
        for name, meaning in COCO_MEANINGS.items()
    ]
    rows += [
        ("VOC 07", number(evaluation.voc_07.mean, 4), "Pascal VOC's mAP of 2007"),
        ("VOC 10", number(evaluation.voc_10.mean, 4), "Pascal VOC's mAP of 2010"),
        (
            "one class",
            number(evaluation.class_agnostic_ap, 4),
            "AP if all classes were one: how well objects are found",
        ),
    ]
    cells = "".join(
        f"<tr><td>{name}</td><td>{value}</td>"
        f'<td class="words">{html.escape(words)}</td></tr>\n'
        for name, value, words in rows
    )
    return f"<table>{cells}</table>"


def classes_table(evaluation):
    """A row per class, and one for all."""
    rows = [*class_rows(evaluation), row_of_all(evaluation)]
    cells = [(row.name, f"{row.num_objects:,}", *map(number, row[2:])) for row in rows]
    return _stacked(CLASS_COLUMNS, cells, last_is_all=True)


def slices_table(column, slices):
    """A row per value of a column."""
    return _stacked((column, *SLICE_COLUMNS), [slice_cells(one) for one in slices])


def comparison_table(comparison):
    """Each number of two detectors, and the difference."""
    cells = [
        (name, number(one), number(two), difference(one, two))
        for name, one, two in comparison.rows()
    ]
    return _stacked(("", "first", "second", "difference"), cells)


def facts_table(facts):
    """Names and values, as text."""
    cells = "".join(
        f'<tr><td>{html.escape(str(name))}</td><td class="words">'
        f"{html.escape(str(value))}</td></tr>\n"
        for name, value in facts.items()
    )
    return f"<table>{cells}</table>"


def _stacked(columns, rows, last_is_all=False):
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = []
    for place, cells in enumerate(rows):
        of_all = last_is_all and place == len(rows) - 1
        first, *rest = (html.escape(cell) for cell in cells)
        named = "".join(
            f'<td data-name="{name}">{cell}</td>'
            for name, cell in zip(columns[1:], rest)
        )
        tag = '<tr class="all">' if of_all else "<tr>"
        body.append(f"{tag}<td>{first}</td>{named}</tr>\n")
    return (
        f'<table class="stacked"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table>"
    )
