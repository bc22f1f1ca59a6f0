"""Pushes an archive to a repository of the Hugging Face Hub, as one commit."""

from __future__ import annotations

import json
import pathlib
import re
import tempfile

import yaml

from effdet_keras._internal.json_files import read_json_object
from effdet_keras._internal.remote_path import path_of
from effdet_keras._internal.whole_files import is_remote, local_path
from effdet_keras.errors import InvalidStateError, require
from effdet_keras.evaluate.coco import COCO_MEANINGS
from effdet_keras.extras.remote.hugging_face import (
    errors_of_hub,
    huggingface_hub,
    parse_hub_address,
)
from effdet_keras.network.build import copied
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.weights.archive import (
    ARCHIVE_ENTRY,
    checkpoint_file,
    load_archive,
    read_archive_info,
    read_entry,
    write_archive,
)
from effdet_keras.weights.checkpoint_files import BEST_FILE, CONFIGURATION_FILE

_CARD = "README.md"
_HUB_FILES = {".gitattributes", _CARD}
# Other entries of an archive, such as the random state, only matter for its training.
_TOLD = """
    format config class_names category_ids score_settings versions created epoch
""".split()
_NOTED = ("epoch", "metrics")  # entries that are kept in the pushed archive


def push_archive(
    path, address, license=None, private=None, overwrite=False, data=None, numbers=None
):
    """Uploads a model with a model card, in one commit."""
    where = parse_hub_address(address)
    rule = (
        "A model can only be pushed to the main branch of a repository, "
        "'hf://owner/name'"
    )
    is_other = where.path or where.revision or where.repo_type != "model"
    require(not is_other, rule, address=address)
    hub = huggingface_hub.require(f"'{address}'")
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder, BEST_FILE)
        _write_what_detects(checkpoint_file(path, BEST_FILE), model)
        about = {"license": license, "data": data, "numbers": numbers}
        with errors_of_hub(hub, f"The model was not pushed to '{address}'"):
            return _push(hub, model, address, private, overwrite, about)


def _write_what_detects(source, target):
    """Writes an archive with the weights of another, as if never compiled."""
    model = copied(load_archive(source))
    before = read_entry(source) or {}
    noted = {name: before[name] for name in _NOTED if name in before}
    write_archive(model, target, noted)


def _push(hub, model, address, private, overwrite, about):
    """Uploads an archive with metadata and model card; returns the commit's URL."""
    repository = parse_hub_address(address).repository
    info = read_archive_info(model)
    described = {name: info[name] for name in _TOLD if name in info}
    api = hub.HfApi()
    names, parent = [], None
    if api.repo_exists(repository):
        there = api.model_info(repository)
        if private and not there.private:
            raise InvalidStateError(
                f"'{address}' already exists and is public: nothing was pushed. "
                "Make it private in its settings on the hub, or leave `private` "
                "(--private) out."
            )
        names, parent = [s.rfilename for s in there.siblings or []], there.sha
    else:
        repository = api.create_repo(repository, private=private).repo_id
    if not (overwrite or _is_same(api, repository, names, described)):
        others = ", ".join(sorted(set(names) - _HUB_FILES)[:8])
        raise FileExistsError(
            f"'{address}' already has another model, or other files: {others}. Give "
            "another name, or pass `overwrite` (--overwrite) to add this model in a "
            "new commit: files with other names are kept."
        )
    contents = {BEST_FILE: str(model)}
    contents[ARCHIVE_ENTRY] = json.dumps(described, indent=1).encode()
    card = _text_there(api, repository, names, _CARD)
    if is_ours_to_write(card):
        about = {**about, "license": about["license"] or license_of(card)}
        contents[_CARD] = model_card(info, repository, **about).encode()
    commit = api.create_commit(
        repository,
        [
            hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=content)
            for name, content in contents.items()
        ],
        commit_message="Model of effdet-keras",
        parent_commit=parent,  # fails if the repository has changed since it was read
    )
    return commit.commit_url


def _is_same(api, repository, names, described):
    """Returns whether a repository has the same network and classes, or no model."""
    if not set(names) - _HUB_FILES:
        return True
    before = json.loads(_text_there(api, repository, names, ARCHIVE_ENTRY) or "{}")
    fields = "config", "class_names"
    return bool(before) and all(before.get(x) == described.get(x) for x in fields)


def _text_there(api, repository, names, name):
    """Returns the text of a file in a repository; "" if it has no such file."""
    if name not in names:
        return ""
    path = pathlib.Path(api.hf_hub_download(repository, name))
    return path.read_text(encoding="utf-8")


# --- The model card: what a model detects, its metrics, and how to load it.

GENERATED = "<!-- Written by effdet-keras: a card without this line is kept. -->"
_FRONT = re.compile(r"\A---\n(.*?)^---\s*", re.DOTALL | re.MULTILINE)


def model_card(info, repository, *, license=None, data=None, numbers=None):
    """Returns the text of `README.md` for a repository."""
    data, numbers = data or {}, numbers or {}
    known = {x: numbers.get(x) for x in COCO_MEANINGS}
    # None or -1 means that there was nothing to measure.
    measured = {x: v for x, v in known.items() if v is not None and v >= 0}
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
        license or "The author gave no licence.",
    ]
    return "\n\n".join(parts) + "\n"


def is_ours_to_write(text):
    """Returns whether we may replace a card: it is ours, or has no text."""
    return GENERATED in text or not _FRONT.sub("", text, count=1).strip()


def license_of(text):
    """Returns the licence in the front matter of a card, or None."""
    front = _FRONT.match(text)
    fields = yaml.safe_load(front[1]) if front else None
    return fields.get("license") if isinstance(fields, dict) else None


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
        return ["## Metrics", "No metrics were measured."]
    rows = [
        f"| {name} | {measured[name]:.4f} | {COCO_MEANINGS[name]} |"
        for name in measured
    ]
    table = "\n".join(["| COCO | value | what |", "|---|---|---|", *rows])
    return ["## Metrics", f"On the split '{split}':" if split else "", table]


# --- Runs: the best checkpoint, with facts about its data.


def share_model(model, address, **options):
    """Pushes the best checkpoint of a run, or an archive; see `push_archive`."""
    path = checkpoint_file(model, BEST_FILE)
    run = path_of(model) if is_remote(model) else local_path(model, "MODEL")
    numbers = _numbers(run, path)
    return push_archive(path, address, data=_data(run), numbers=numbers, **options)


def _data(run):
    """Returns the splits of a run's data; the last part of its path is the name."""
    described = _read(run / "data.json", "splits")
    if described is None or not (run / CONFIGURATION_FILE).is_file():
        return None
    configuration = RunConfiguration.read(run / CONFIGURATION_FILE)
    data = configuration.data or configuration.train_file_pattern
    # The rest of the path only makes sense on the machine that trained.
    return {**described, "name": pathlib.PurePath(data).name if data else None}


def _numbers(run, checkpoint):
    """Returns a run's final metrics if they are of this checkpoint, else its own."""
    numbers = _read(run / "numbers.json")
    info = read_entry(checkpoint) or {}
    if numbers is not None and numbers.get("epoch") == info.get("epoch"):
        return numbers
    return info.get("metrics")


def _read(path, *names):
    """Returns the content of a run's JSON file; None if there is none."""
    cure = "Put a whole copy in its place, or move it away: the card does without it."
    return read_json_object(path, "a run", cure, names) if path.is_file() else None
