"""The migration guides leave nothing out: each flag and field has a row of its own."""

import inspect
import pathlib
import re

import keras
import numpy as np
import pytest
from support.tiny import batch, tiny_model

import effdet_keras as ek
from effdet_keras.network.anchors import level_sizes

ROOT = pathlib.Path(__file__).parents[1]
AUTOML = "migrating_from_automl.md"
TFOD = "migrating_from_tfod.md"
HPARAMS = "every hyper-parameter"


def names_of(list_name):
    """Group (a script, a message) to the names of its list."""
    path = ROOT / "tests" / "golden" / "migration" / list_name
    groups = {}
    for line in path.read_text().splitlines():
        *group, name = line.split()
        groups.setdefault(" ".join(group) or HPARAMS, []).append(name)
    return groups


def rows_of(page):
    """Each table row: the headings above it, the names on the left, the right cell."""
    headings, rows = [], []
    for line in (ROOT / "docs" / page).read_text().splitlines():
        if line.startswith("#"):
            depth = len(line) - len(line.lstrip("#"))
            headings = [*headings[: depth - 1], line.lower()]
        elif line.startswith("| `"):
            cells = line.strip("|").split(" | ")
            assert len(cells) == 2, line
            assert all(cell.strip() for cell in cells), line
            names = re.findall(r"`([\w./]+)`", cells[0])
            rows.append((headings, names, cells[1].strip()))
    return rows


def rows_under(rows, group):
    return {
        name for above, names, _ in rows if group in " ".join(above) for name in names
    }


def data_rows():
    """The two tables of docs/data.md are headed by the script, not by a heading."""
    text = (ROOT / "docs" / "data.md").read_text()
    tables = {}
    for script in ("create_coco_tfrecord.py", "create_pascal_tfrecord.py"):
        table = text[text.index(f"| `{script}` |") :].split("\n\n")[0]
        first = [line.split(" | ")[0] for line in table.splitlines()]
        tables[f"dataset/{script}"] = set(re.findall(r"--(\w+)", "\n".join(first)))
    return tables


GROUPS = [
    (page, group, names)
    for page, start, lists in (
        (AUTOML, "automl", ("flags", "hparams", "code")),
        (TFOD, "tfod", ("fields", "flags", "code")),
    )
    for of_what in lists
    for group, names in names_of(f"{start}_{of_what}.txt").items()
]


@pytest.mark.parametrize(("page", "group", "names"), GROUPS, ids=lambda x: str(x)[:40])
def test_every_name_has_a_row(page, group, names):
    there = data_rows().get(group) or rows_under(rows_of(page), group)
    assert sorted(set(names) - there) == []


@pytest.mark.parametrize("page", [AUTOML, TFOD])
def test_no_row_is_made_up(page):
    groups = {group: names for where, group, names in GROUPS if where == page}
    for above, names, _ in rows_of(page):
        headings = " ".join(above)
        if "## every " not in headings:
            continue
        allowed = {
            n for group, names in groups.items() if group in headings for n in names
        }
        assert set(names) <= allowed, headings


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("section", "function"),
    [
        ("fields of `efficientdetconfig`", ek.EfficientDetConfig),
        ("arguments of `detectionloss`", ek.DetectionLoss),
        ("arguments of `batches`", "data"),
        ("arguments of `postprocess`", ek.Postprocess),
    ],
)
def test_hyper_parameters_are_given_by_arguments_that_exist(section, function):
    if function == "data":
        function = ek.data.DetectionDataset.batches
    known = set(inspect.signature(function).parameters)
    used = set()
    for above, names, here in rows_of(AUTOML):
        if section in above[-1]:
            used |= set(names) if here.startswith("the same name") else set()
            for code in re.findall(r"`(\w+|\w+=[^`]+)`", here):
                used |= set(re.findall(r"(?:^|, )([a-z_]+)\b", code))
    assert len(used) > 3
    assert sorted(used - known) == []


def test_every_hyper_parameter_has_a_test_that_exists():
    path = ROOT / "tests" / "golden" / "migration" / "automl_hparams_tests.txt"
    rows = [line.split() for line in path.read_text().splitlines()]
    assert [row[0] for row in rows] == names_of("automl_hparams.txt")[HPARAMS]
    for name, *tests in rows:
        assert tests, name
        for file, function in (test.split("::") for test in tests):
            assert f"\ndef {function}(" in (ROOT / file).read_text(), name


@pytest.mark.parametrize("page", [AUTOML, TFOD])
def test_what_several_workers_do_is_said_in_one_place(page):
    rows = (ROOT / "docs" / page).read_text().splitlines()
    of_workers = [
        row for row in rows if re.match(r"\| `(worker|num_workers|strategy)`", row)
    ]
    assert of_workers and all("](distributed.md" in row for row in of_workers)


def test_the_lists_are_whole():
    """The counts of tests/golden/PROVENANCE-migration.md."""
    counts = {
        name: sum(map(len, names_of(name).values()))
        for name in ("automl_flags.txt", "automl_hparams.txt")
    }
    assert counts == {"automl_flags.txt": 159, "automl_hparams.txt": 83}
    assert len(names_of("automl_flags.txt")) == 11


@pytest.mark.tensorflow
def test_the_code_of_the_guide_has_the_outputs_level_by_level():
    text = (ROOT / "docs" / AUTOML).read_text()
    section = text[text.index("### Outputs of the network") :]
    code = section[section.index("```python") + 9 : section.index("```\n\n## ")]
    images, model = batch(2)[0], tiny_model()
    found = {"model": model, "images": images, "keras": keras}
    exec(code, found)
    levels, outputs = found["levels"], model(images)
    sizes = level_sizes((64, 64), 3, 5)
    for name, channels in (("class_logits", 9 * 3), ("box_deltas", 9 * 4)):
        arrays = [np.asarray(levels[level][name]) for level in (3, 4, 5)]
        assert [x.shape for x in arrays] == [(2, *size, channels) for size in sizes]
        joined = np.concatenate([x.reshape(2, -1, channels // 9) for x in arrays], 1)
        np.testing.assert_array_equal(joined, outputs[name])
        # The second row of the first level, its third column: one anchor after another.
        start = (1 * sizes[0][1] + 2) * 9
        expected = np.asarray(outputs[name])[0, start : start + 9].reshape(-1)
        np.testing.assert_array_equal(arrays[0][0, 1, 2], expected)


@pytest.mark.tensorflow
def test_steps_per_second_and_weights_of_boxes_are_where_the_guides_say(tmp_path):
    images, truth = batch(4)
    truth = {**truth, "weights": np.float32([[1.0], [0.5], [0.0], [1.0]])}
    logs = keras.callbacks.TensorBoard(tmp_path, write_steps_per_second=True)
    model = tiny_model()
    model.compile(recipe="tfod")
    history = model.fit(
        images, truth, batch_size=2, epochs=2, verbose=0, callbacks=[logs]
    ).history
    assert "gradient_norm" in history
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("events*"))
    assert b"epoch_steps_per_second" in written
