"""docs/faq.md: each message that it quotes exists, and comes when the page says so."""

import ast
import functools
import json
import pathlib
import re

import numpy as np
import pytest
from PIL import Image
from support.tiny import batch, tiny_model

import effdet_keras as ek

pytestmark = pytest.mark.tensorflow

ROOT = pathlib.Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "faq.md").read_text()
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def quotes(text):
    """What prose puts in quotation marks, without code."""
    prose = re.sub(r"`[^`]*`", "", FENCE.sub("", text))
    return [" ".join(quote.split()) for quote in re.findall(r'"([^"]+)"', prose)]


def answer(heading):
    """The text of the page below a heading."""
    _, _, rest = PAGE.partition(f"\n## {heading}\n")
    assert rest, heading
    return " ".join(re.split(r"^##? ", rest, flags=re.MULTILINE)[0].split())


@functools.cache
def texts_of_the_package():
    """All text of the code, the variable parts of messages left out."""
    found = []
    for path in sorted((ROOT / "effdet_keras").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (p.value for p in node.values if isinstance(p, ast.Constant))
                found.append("\0".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def test_each_message_that_the_page_quotes_is_in_the_code():
    quoted = quotes(PAGE)
    assert len(quoted) > 20
    missing = [
        q for q in quoted if not any(q in text for text in texts_of_the_package())
    ]
    # `Killed` is the shell's.
    assert [quote for quote in missing if quote != "Killed"] == []


def test_the_check_sees_a_message_that_the_code_does_not_have():
    (quote,) = quotes('**You see** "the images have\nrun away", and `code "x"`.')
    assert quote == "the images have run away"
    assert not any(quote in text for text in texts_of_the_package())


@pytest.fixture
def read(tmp_path):
    """Reads a COCO json with one image and one box, with changes."""
    pixels = np.zeros((100, 200, 3), "uint8")
    Image.fromarray(pixels).save(tmp_path / "a.jpg")

    def read_coco(image=None, annotation=None, categories=("cat",), **options):
        image = {
            "id": 1,
            "file_name": "a.jpg",
            "width": 200,
            "height": 100,
            **(image or {}),
        }
        box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 20, 50, 40]}
        content = {
            "images": [image],
            "annotations": [{**box, "area": 2000, "iscrowd": 0, **(annotation or {})}],
            "categories": [{"id": i, "name": n} for i, n in enumerate(categories, 1)],
        }
        (tmp_path / "x.json").write_text(json.dumps(content))
        return ek.data.from_coco(tmp_path / "x.json", tmp_path, **options)

    return read_coco


@pytest.mark.parametrize(
    ("heading", "quote", "changes"),
    [
        ("Images are not found", "missing image", {"image": {"file_name": "b.jpg"}}),
        (
            "Labels start at 1",
            "unknown class",
            {"annotation": {"category_id": 2}},
        ),
        (
            "Annotations belong to no image",
            "only stray annotations",
            {"annotation": {"image_id": 7}},
        ),
    ],
)
def test_a_dataset_is_refused_as_the_page_says(read, heading, quote, changes):
    assert f'"{quote}"' in answer(heading)
    with pytest.raises((ValueError, FileNotFoundError), match=quote):
        read(**changes)


@pytest.mark.parametrize(
    ("quote", "changes"),
    [
        ("empty box", {"annotation": {"bbox": [10, 20, 0, 40]}}),
        ("box outside", {"annotation": {"bbox": [250, 20, 50, 40]}}),
    ],
)
def test_a_box_that_cannot_be_learned_is_not_trained_on_and_a_warning_says_so(
    read, quote, changes
):
    assert f'"{quote}"' in answer("Boxes disappear")
    with pytest.warns(UserWarning, match=quote):
        dataset = read(**changes)
    ((_, truth),) = dataset.batches(1, image_size=64)
    assert not (truth["labels"].numpy() >= 0).any()


def test_a_category_without_boxes_is_left_out_by_class_names(read):
    assert "class_names=" in answer("There is one class too many")
    everything = read(categories=("cat", "objects"))
    assert everything.class_names == ("cat", "objects")
    assert read(categories=("cat", "objects"), class_names=["cat"]).num_classes == 1


@pytest.mark.parametrize(
    ("heading", "quote", "box", "label"),
    [
        (
            "Labels start at 1",
            "Labels must start at 0 and be below the model's",
            (8, 8, 40, 40),
            3,
        ),
        (
            "Boxes are xywh, or between 0 and 1",
            "this box ends before it begins",
            (30, 8, 20, 10),
            0,
        ),
    ],
)
def test_ground_truth_is_refused_as_the_page_says(heading, quote, box, label):
    assert f'"{quote}"' in answer(heading)
    model = tiny_model()
    model.compile("adamw", learning_rate=1e-3, schedule="constant", run_eagerly=True)
    images, truth = batch(label=label, box=box)
    with pytest.raises(ValueError, match=re.escape(quote)):
        model.fit(images, truth, verbose=0)


def test_normalized_boxes_are_refused_as_the_page_says(read):
    heading = "Boxes are xywh, or between 0 and 1"
    assert '"normalized box"' in answer(heading)
    with pytest.raises(ValueError, match="normalized box"):
        ek.data.from_arrays(
            [np.zeros((50, 50, 3), "uint8")],
            [[[0.1, 0.1, 0.5, 0.5], [0.2, 0.2, 0.5, 0.5]]],
            [[0, 0]],
            ["cat"],
        )


def test_the_conversion_of_boxes_on_the_page_is_right():
    (code,) = [c for c in FENCE.findall(PAGE) if "boxes_xywh" in c]
    lines = code.splitlines()[1:-1]
    names = {"np": np, "boxes_xywh": np.array([[8, 20, 50, 40]])}
    exec("\n".join(lines[:2]), names)
    assert names["boxes"].tolist() == [[20, 8, 60, 58]]
    names |= {"boxes_normalized": np.array([[0.2, 0.1, 0.5, 1.0]])}
    names |= {"height": 100, "width": 200}
    exec(lines[2], names)
    assert names["boxes"].tolist() == [[20, 20, 50, 200]]


@pytest.mark.parametrize(
    ("pixels", "expected"),
    [
        (np.full((4, 4), 65535, "uint16"), 255),
        (np.full((4, 4), 257, "uint16"), 1),
        (np.full((4, 4), 7, "uint8"), 7),
        (np.full((4, 4), 1.0, "float32"), 255),
        (np.full((4, 4), 200.0, "float32"), 200),
        (np.full((4, 4, 4), 9, "uint8"), 9),
    ],
    ids=["white", "16-bit", "grey", "fraction", "float", "transparent"],
)
def test_images_of_other_kinds_become_8_bit_rgb(tmp_path, pixels, expected):
    Image.fromarray(pixels).save(tmp_path / "a.tif")
    dataset = ek.data.from_arrays(
        [tmp_path / "a.tif"], [[[0, 0, 4, 4]]], [[0]], ["cat"]
    )
    image = np.asarray(dataset[0]["image"])
    assert (image.dtype, image.shape) == ("uint8", (4, 4, 3))
    assert image.tolist() == np.full((4, 4, 3), expected).tolist()


@pytest.mark.parametrize(
    ("height", "width", "name"), [(200, 100, "turned"), (100, 200, "sideways")]
)
def test_the_annotated_size_decides_whether_a_photo_is_turned(
    read, tmp_path, height, width, name
):
    exif = Image.Exif()
    exif[274] = 6  # turn it to the right
    photo = Image.fromarray(np.zeros((100, 200, 3), "uint8"))
    photo.save(tmp_path / "turned.jpg", exif=exif)
    dataset = read({"file_name": "turned.jpg", "height": height, "width": width})
    assert dataset[0]["image"].shape == (height, width, 3)
    assert f'"{name} image"' in answer("Photos are turned")
    assert f"{name} image" in str(ek.data.check(dataset))
