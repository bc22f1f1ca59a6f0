"""The model card of an archive: what it detects, how well, and how to load it."""

import re

import yaml

from effdet_keras.evaluation.coco_metric import COCO_MEANINGS

GENERATED = "<!-- Written by effdet-keras: a card without this line is kept. -->"
_FRONT = re.compile(r"---\n(.*?\n)---\s", re.DOTALL)
_FRONT_ALONE = re.compile(r"---\n(?:(?!---).*\n)*---\s*")


def model_card(info, repository, *, license=None, data=None, numbers=None):
    """The text of `README.md` for a repository.

    Args:
        info: dict of `read_archive_info`.
        repository: string, `owner/name`.
        license: string, as the hub spells it, such as "apache-2.0"; or None.
        data: dict of the training data: `name`, and `splits` as `describe_data` has
            them; or None.
        numbers: dict from name to COCO's numbers, and `split` for the one they were
            measured on; or None.

    Returns:
        string.

    Example:
        >>> info = {"config": {"image_size": [64, 64], "name": "efficientdet-d0"},
        ...         "class_names": ["cat"], "num_classes": 1}
        >>> card = model_card(info, "me/cats", license="mit")
        >>> card.splitlines()[1], "hf://me/cats" in card
        ('license: mit', True)
    """
    data, numbers = data or {}, numbers or {}
    measured = {
        name: numbers[name] for name in COCO_MEANINGS if _is_known(numbers, name)
    }
    front = {
        **({"license": license} if license else {}),
        "library_name": "effdet-keras",
        "pipeline_tag": "object-detection",
        "tags": ["efficientdet", "object-detection", "keras"],
        **_index(repository, data, numbers, measured),
    }
    name = info["config"].get("name") or "EfficientDet"
    height, width = info["config"]["image_size"]
    parts = [
        f"---\n{yaml.safe_dump(front, sort_keys=False)}---",
        GENERATED,
        f"# {repository.partition('/')[2]}",
        f"{name} on images of {height} x {width}, an object detector of "
        "[effdet-keras](https://pypi.org/project/effdet-keras).",
        "## How to load it",
        '```python\n# pip install "effdet-keras[huggingface]"\n'
        "import effdet_keras as ek\n\n"
        f'predictor = ek.Predictor.load("hf://{repository}")\n'
        'detections = predictor.detect("image.jpg")\n```',
        "## Classes",
        ", ".join(info["class_names"] or ["(the classes have no names)"]),
        *_data_text(data),
        *_metrics_text(measured, numbers.get("split")),
        "## Licence",
        license or "The author named no licence.",
    ]
    return "\n\n".join(parts) + "\n"


def is_ours_to_write(text):
    """Whether the card of a repository may be replaced: ours, or without any words.

    A repository that was made on the web has a card of a front matter alone.

    Args:
        text: string, the card.

    Example:
        >>> is_ours_to_write("---\\nlicense: mit\\n---\\n")
        True
        >>> is_ours_to_write("---\\nlicense: mit\\n---\\nMy cats\\n\\n---\\n")
        False
    """
    is_empty = not text.strip() or _FRONT_ALONE.fullmatch(text) is not None
    return is_empty or GENERATED in text


def license_of(text):
    """The licence that the front matter of a card names, or None.

    Args:
        text: string, the card.

    Example:
        >>> license_of("---\\nlicense: mit\\n---\\n"), license_of("My cats")
        ('mit', None)
    """
    front = _FRONT.match(f"{text}\n")
    try:
        fields = yaml.safe_load(front[1]) if front else None
    except yaml.YAMLError:  # of somebody's own; it is replaced
        return None
    named = fields.get("license") if isinstance(fields, dict) else None
    return named if isinstance(named, str) else None


def _index(repository, data, numbers, measured):
    if not measured:
        return {}
    name = data.get("name") or "dataset of the author"
    dataset = {"name": name, "type": name, "split": numbers.get("split") or "unknown"}
    metrics = [
        {"type": name, "name": f"COCO {name}", "value": round(float(value), 4)}
        for name, value in measured.items()
    ]
    task = {"type": "object-detection"}
    result = {"task": task, "dataset": dataset, "metrics": metrics}
    return {"model-index": [{"name": repository, "results": [result]}]}


def _is_known(numbers, name):
    """Whether it was measured: not where there is no such box (-1), nor null."""
    return numbers.get(name) is not None and numbers[name] >= 0


def _data_text(data):
    if not data:
        return []
    rows = [
        f"| {name} | {split['images']} | {split['boxes']} |"
        for name, split in data.get("splits", {}).items()
    ]
    table = "\n".join(["| split | images | boxes |", "|---|---|---|", *rows])
    return ["## Data", data.get("name") or "Not named.", table]


def _metrics_text(measured, split):
    if not measured:
        return ["## Metrics", "None were measured."]
    rows = [
        f"| {name} | {measured[name]:.4f} | {COCO_MEANINGS[name]} |"
        for name in measured
    ]
    table = "\n".join(["| COCO | value | what |", "|---|---|---|", *rows])
    return ["## Metrics", f"On the split '{split}':" if split else "", table]
