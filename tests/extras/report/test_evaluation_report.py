"""The report: one whole file, every image in it, labels legible, markup escaped."""

import base64
import dataclasses
import html
import io
import re

import numpy as np
import pytest
from PIL import Image
from support.html_tags import Tags
from support.image_results import random_results

import effdet_keras as ek
from effdet_keras.evaluate.coco import METRIC_NAMES
from effdet_keras.extras.analysis.compare import compare_evaluations

pytestmark = pytest.mark.tensorflow  # `ek.data`

NAMES = ("<script>cat", "dog", "bird")
EVIL = "<script>alert('x')</script>&\".jpg"


@pytest.fixture(scope="module")
def results():
    found = random_results(4, num_images=8, num_classes=3)
    return [dataclasses.replace(r, name=f"{r.image_id}{EVIL}") for r in found]


@pytest.fixture(scope="module")
def dataset(results):
    """Images of these results, in sizes from small to large; one cannot be read."""
    sides = [(40, 60), (900, 1200), *[(300, 300)] * 6]
    records = []
    for result, side in zip(results, sides):
        made = ek.data.from_arrays(
            [np.full((*side, 3), 90, "uint8")], [[]], [[]], ["a"]
        )
        (record,) = made.records
        fields = {"image_id": result.image_id, "file_name": result.name}
        records.append(dataclasses.replace(record, **fields))
    records[-1] = dataclasses.replace(records[-1], image="nowhere.jpg")
    return ek.data.DetectionDataset(records, NAMES)


@pytest.fixture(scope="module")
def report(results, dataset):
    evaluation = ek.metrics.analyze_results(results, NAMES)
    weaker = [dataclasses.replace(r, boxes=r.boxes + 5) for r in results]
    other = ek.metrics.analyze_results(weaker, NAMES)
    return ek.EvaluationReport(
        "Pets & more",
        evaluation,
        results,
        dataset,
        facts={"model": "<b>tiny", "seconds": 3.5},
        history={"loss": [2.0, 1.0, 0.5], "AP": [0.1, float("nan"), 0.3]},
        configuration="epochs: 3\nmodel: <tiny>",
        comparison=compare_evaluations(
            ("first.keras", "<i>"), (other, evaluation), (weaker, results)
        ),
    )


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    report.save(path)
    return path.read_text(encoding="utf-8")


@pytest.mark.smoke
def test_the_page_is_whole_and_needs_nothing_from_outside(page):
    tags = Tags(page)
    assert tags.open == []
    assert not {"script", "link", "iframe", "object"} & set(tags.names)
    links = [value for name, value in tags.attributes if name in ("src", "href")]
    assert links and all(link.startswith("data:image/jpeg;base64,") for link in links)
    text = re.sub('base64,[^"]*', "", page)
    assert "http" not in text and "url(" not in text and "@import" not in text
    assert "<script" not in page and "<i>" not in page and "<b>tiny" not in page
    words = "".join(tags.text)
    assert EVIL in words and "<script>cat" in words and "model: <tiny>" in words


def test_every_part_is_there(page, report):
    titles = re.findall("<h2>(.*?)</h2>", page)
    assert titles == [
        "What matters most",
        "Compared with another detector",
        "Numbers",
        "Classes",
        "Charts",
        "The worst images",
        "Boxes to look at",  # a poor model
        "Training",
        "Model, data, timing",
        "Configuration",
    ]
    charts = re.findall("<h3>([A-Z][^<:]*)</h3><svg", page)
    assert charts == [
        "Precision and recall",
        "Confusion matrix",
        "Kinds of errors, and the AP50 that each costs",
        "Reliability diagram of the scores",
        "AP by size of object",
        "Loss",
        "Average precision",
    ]
    words = "".join(Tags(page).text)
    for name in METRIC_NAMES:
        value = report.evaluation.coco[name]
        assert value == -1 or f"{value:.4f}" in words
    for sentence in report.evaluation.findings + report.comparison.conclusions:
        assert sentence in words


def images_of(page):
    found = re.findall(
        r'alt="([^"]*)" width="(\d+)" height="(\d+)" '
        r'src="data:image/jpeg;base64,([^"]*)"',
        page,
    )
    assert len(found) == page.count("<img") > 6
    images = []
    for name, width, height, code in found:
        image = Image.open(io.BytesIO(base64.b64decode(code)))
        assert image.size == (int(width), int(height))
        images.append((html.unescape(name), image))
    return images


def test_what_is_right_is_green_and_what_is_wrong_is_red():
    image = np.full((200, 200, 3), 90, "uint8")
    truth, found = [[20, 20, 80, 80], [100, 100, 160, 160]], [[20, 20, 80, 80]]
    dataset = ek.data.from_arrays([image], [truth], [[0, 0]], ["cat"])
    result = ek.metrics.ImageResult(
        1, truth, [0, 0], found, [0.9], [0], size=(200, 200)
    )
    evaluation = ek.metrics.analyze_results([result], ["cat"])
    page = ek.EvaluationReport("t", evaluation, [result], dataset).html()
    (_, true), (_, detected), (_, crop) = images_of(page * 3)[:3]
    pixels = np.asarray(true).astype(int)
    assert pixels[20, 50, 1] > pixels[20, 50, 0] + 60  # found: green
    assert pixels[159, 130, 0] > pixels[159, 130, 1] + 60  # missed: red
    pixels = np.asarray(detected).astype(int)
    assert pixels[20, 50, 1] > pixels[20, 50, 0] + 60
    assert abs(pixels[159, 130] - 90).max() < 30  # nothing was found there
    assert max(crop.size) > 160


def test_results_without_objects_or_images_have_a_page():
    nothing = ek.metrics.ImageResult(1, [], [], [[0, 0, 9, 9]], [0.9], [0])
    evaluation = ek.metrics.analyze_results([nothing], ["cat"])
    page = ek.EvaluationReport("Nothing", evaluation, [nothing]).html()
    assert Tags(page).open == [] and "There are no objects" in page
    missed = ek.metrics.ImageResult(1, [[0, 0, 9, 9]], [0], [], [], [])
    evaluation = ek.metrics.analyze_results([missed], ["cat"])
    page = ek.EvaluationReport("Missed", evaluation, [missed]).html()
    assert Tags(page).open == [] and "<img" not in page
    assert "No detection is right" in page


def test_many_classes_are_cut():
    names = [f"class {k}" for k in range(30)]
    boxes = [[0, 10 * k, 9, 10 * k + 9] for k in range(30)]
    result = ek.metrics.ImageResult(1, boxes, range(30), boxes, [0.9] * 30, range(30))
    evaluation = ek.metrics.analyze_results([result], names)
    page = ek.EvaluationReport("Many", evaluation, [result]).html()
    assert page.count('class="cell-text"') == 100  # nine classes and background
    assert page.count('data-name="AP50"') == 31


def test_the_report_has_numbers_and_pictures_of_class_maps():
    image, mask = np.full((32, 48, 3), 99, "uint8"), np.zeros((32, 48), "uint8")
    plain = ek.data.from_arrays([image], [[[4, 8, 20, 40]]], [[0]], ["cat"])
    records = [dataclasses.replace(r, mask=mask) for r in plain.records]
    dataset = ek.data.DetectionDataset(
        records, ["cat"], seg_class_names=["road", "<grass>"]
    )
    results = [
        ek.metrics.ImageResult(
            1, [[4, 8, 20, 40]], [0], [[4, 8, 20, 20]], [0.9], [0], size=(32, 48)
        )
    ]
    evaluation = ek.metrics.analyze_results(results, dataset.class_names)
    without = ek.EvaluationReport("Cats", evaluation, results, dataset).html()
    numbers = {"mIoU": 0.625, "IoU/road": 0.75, "IoU/<grass>": 0.5}
    page = ek.EvaluationReport(
        "Cats",
        evaluation,
        results,
        dataset,
        segmentation=numbers,
        class_maps={1: mask + 1, 7: mask},
    ).html()
    assert "Classes of pixels" in page and "Classes of pixels" not in without
    assert all(text in page for text in ("0.625", "0.75", "&lt;grass&gt;"))
    assert page.count("<img") == without.count("<img") + 2  # image 7 is not there
