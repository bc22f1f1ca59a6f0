"""docs/training_step.md has the numbers that its script computes."""

import importlib.util
import json
import pathlib

import pytest
from support import programs

pytestmark = pytest.mark.tensorflow

ROOT = pathlib.Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "training_step.md").read_text()


@pytest.fixture(scope="module")
def script():
    path = ROOT / "benchmarks" / "draw_training_step.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def followed(script):
    """The model and the batch that the page follows."""
    train = script.dataset()
    model = script.new_model(train)
    return model, *script.batch_of_one(model, train), train


def rows(name):
    """The cells of the row of the page's tables that begins with a name."""
    lines = [line for line in PAGE.splitlines() if line.startswith(f"| {name} |")]
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]


def row_of_stage(stage):
    """The row of the page's table of shapes whose first cell names a stage."""
    (row,) = [x for x in PAGE.splitlines() if f"`{stage}`" in x.split(":")[0]]
    return row


def test_the_page_has_the_boxes_of_the_image(followed):
    _, images, truth, train = followed
    assert tuple(images.shape) == (1, 256, 320, 3)
    for box, label in zip(truth["boxes"][0].numpy(), truth["labels"][0].numpy()):
        cells = ", ".join(f"{number:.1f}" for number in box)
        assert f"| {cells} | {train.class_names[label]} |" in PAGE


def test_the_page_has_the_shape_of_each_stage(followed, script):
    model, images, *_ = followed
    for stage, shapes in script.shapes(model, images):
        sizes = [" x ".join(f"{n:,}" for n in shape[1:]) for shape in shapes]
        if stage == "fpn_cells":  # 64 channels, which the page has once
            assert all(size.endswith(" x 64") for size in sizes)
            sizes = [size.removesuffix(" x 64") for size in sizes]
        if stage != "image":
            row = row_of_stage(stage)
            assert all(size in row for size in sizes), stage


def test_the_page_has_the_numbers_of_matched_anchors(followed, script):
    model, _, truth, _ = followed
    found = list(script.matching_numbers(model, truth))
    for column, (_, count, of_level, (platelets, red, white)) in enumerate(found, 1):
        expected = {
            "all": count,
            "on level 3": of_level[3],
            "on level 4": of_level[4],
            "on level 5": of_level[5],
            "on levels 6 and 7": of_level[6] + of_level[7],
            "for the 2 platelets": platelets,
            "for the 3 red cells (RBC)": red,
            "for the white cell (WBC)": white,
        }
        for name, number in expected.items():
            ((*cells,),) = rows(name)
            assert cells[column] == str(number), name


_NUMBERS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import draw_training_step as script

train = script.dataset()
model = script.new_model(train)
images, truth = script.batch_of_one(model, train)
outputs, *targets, terms, gradients = script.forward_and_gradients(
    script.new_model(train), images, truth
)
step = script.step_numbers(script.new_model(train), images, truth, None)
print(json.dumps({
    "losses": script.loss_numbers(outputs, *targets, terms),
    "step": step,
    "gradients": script.gradient_numbers(model.trainable_variables, gradients),
}))
"""


@pytest.mark.slow
def test_the_page_has_the_losses_and_what_the_step_logs():
    # In a process of its own: of one image and random weights, gradients move by per
    # cents with the last digits of what comes before, and so with other tests.
    said = programs.run_alone("-c", _NUMBERS, ROOT / "benchmarks")
    computed = json.loads(said.splitlines()[-1])
    numbers, (logs, of_weights, change) = computed["losses"], computed["step"]
    for name in ("loss", "class_loss", "box_loss", "box_iou_loss"):
        assert logs[name] == pytest.approx(numbers[name], rel=1e-4)
        last_of_row = [
            float(cells[1]) for cells in rows(f"`{name}`") if len(cells) == 2
        ]
        assert last_of_row == [pytest.approx(logs[name], rel=1e-3)], name
    found, largest = computed["gradients"]
    assert f"`{largest}`" in PAGE
    assert f"| all gradients together | {found['norm of all gradients']:.1f} |" in PAGE
    assert f"was {of_weights:.1f}, and" in " ".join(PAGE.split())
    assert f"norm {change:.3f}." in " ".join(PAGE.split())
