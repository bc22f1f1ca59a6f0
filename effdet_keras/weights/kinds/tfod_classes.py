"""Class names of a model of the Object Detection API, from its label map."""

import pathlib
import re

from effdet_keras.data.formats.label_map import read_label_map


def classes_of_label_map(model):
    """Names and ids of the labels of a `PipelineModel`, where its label map is here.

    Label `i` has the id `i + 1` there. The map is looked for where the file says, and
    under its name beside the file.

    Args:
        model: `PipelineModel`.

    Returns:
        `(names, ids, notes)`: tuples with an entry per label, or None and None; and
        strings for the report.
    """
    if not model.label_map:
        return None, None, ()
    named = pathlib.Path(model.label_map)
    beside = model.path.parent / re.split(r"[/\\]", model.label_map)[-1]
    path = next((path for path in (named, beside) if path.is_file()), None)
    if path is None:
        note = f"the label map '{model.label_map}' is not here: give `class_names`"
        return None, None, (note,)
    known = read_label_map(path)
    ids = tuple(range(1, model.num_classes + 1))
    names = tuple(known.get(i, f"unused-{i}") for i in ids)
    above = [i for i in known if i > model.num_classes]
    if not above:
        return names, ids, ()
    note = f"'{path}' has ids above the {model.num_classes} classes: {above[:5]}"
    return names, ids, (note,)
