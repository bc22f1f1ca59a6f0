"""The report of `check`: what the terminal shows, what the HTML file holds."""

import base64
import dataclasses
import io
import pathlib
import re
import xml.etree.ElementTree

import numpy as np
import pytest
from PIL import Image
from support.html_tags import Tags
from support.small_datasets import record_of

from effdet_keras import cli
from effdet_keras.data import DetectionDataset, check, from_arrays, write_shapes
from effdet_keras.data.problems import KINDS
from effdet_keras.extras.report import charts

EVIL = "<script>alert('x')</script>&\".jpg"


def tags_of(page):
    return Tags(page, unclosed=("meta", "img"))


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    return write_shapes(folder, num_train=24, num_valid=1, image_size=64)[0]


@pytest.fixture(scope="module")
def spoiled(clean):
    """A class name and a file name with markup, a missing image, five cut boxes."""
    records = list(clean.records)
    records[2] = dataclasses.replace(records[2], file_name=EVIL, image="gone.jpg")
    wide = [[60, 5 + 9 * i, 9, 5] for i in range(5)]
    image, name = records[4].image, {"file_name": records[4].file_name}
    records[4] = record_of(image, (64, 64), records[4].image_id, wide, [0] * 5, **name)
    return DetectionDataset(records, ["<b>circle", "square", "triangle"])


@pytest.fixture(scope="module")
def report(spoiled):
    return check(spoiled, image_size=128)


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    report.save(path)
    return path.read_text(encoding="utf-8")


def test_the_text_counts_names_and_says_what_training_does(report):
    text = str(report)
    lines = text.splitlines()
    assert lines[0] == repr(report.dataset)
    assert any(x.startswith("Only 24 images: expect AP") for x in lines)
    at = lines.index("errors")
    assert lines[at + 1] == "  1 missing image (image left out)"
    assert lines[at + 2] == f"    {EVIL}: the file 'gone.jpg' does not exist"
    at = lines.index("notes")
    assert lines[at + 1] == "  5 clipped boxes (clipped to the image)"
    assert lines[at + 5] == "    and 2 more"
    assert lines[-1] == "Not fit to train on: 1 error, 0 warnings, 5 notes"


def test_of_images_with_one_name_the_text_says_which(tmp_path):
    records = []
    for number, folder in enumerate("ab"):
        path = tmp_path / folder / "1.png"
        path.parent.mkdir()
        Image.new("RGB", (20, 20)).save(path)
        records.append(record_of(path, (20, 20), number, file_name="1.png"))
    text = str(check(DetectionDataset(records, ["cat"]), image_size=128))
    first, second = tmp_path / "a" / "1.png", tmp_path / "b" / "1.png"
    assert f"1.png, with the same boxes ({first}, {second})" in text


def test_the_text_shows_the_coverage(report):
    lines = str(report).splitlines()
    at = lines.index(
        "anchors of efficientdet-lite0 at 128x128: boxes whose best anchor has an IoU "
        "of 0.5 or more"
    )
    size, boxes, share, percent, mean = lines[at + 2].split()
    every = report.coverage[0]
    assert (size, boxes, percent) == ("all", str(every.num_boxes), "%")
    assert float(share) == pytest.approx(100 * every.share, abs=0.06)
    assert float(mean) == pytest.approx(every.mean_iou, abs=0.006)


def test_the_page_is_whole_and_needs_nothing_from_outside(page):
    tags = tags_of(page)
    assert tags.open == []
    assert not {"script", "link", "iframe"} & set(tags.names)
    links = [value for name, value in tags.attributes if name in ("src", "href")]
    assert links and all(link.startswith("data:image/jpeg;base64,") for link in links)
    assert "http" not in re.sub('base64,[^"]*', "", page)
    assert "url(" not in page and "@import" not in page
    assert "prefers-color-scheme: dark" in page


def test_names_from_the_data_set_are_escaped(page):
    tags = tags_of(page)
    assert "<script" not in page and "<b>circle" not in page
    assert EVIL in "".join(tags.text)
    assert any("<b>circle" in text for text in tags.text)


def test_the_page_names_every_problem(report, page):
    tags = tags_of(page)
    assert tags.names.count("li") == len(report.problems) == 6
    text = "".join(tags.text)
    for problem in report.problems:
        assert problem.file in text and problem.detail in text


def test_images_are_shown_with_boxes_and_missing_ones_are_not(page, clean):
    shown = images_of(page)
    names = [name for name, _ in shown]
    # The cut boxes are all in the fifth; below, each sample is there once.
    assert names[0] == clean.records[4].file_name
    assert len(set(names[1:])) == len(names[1:]) >= 10
    assert not any("script" in name for name in names)
    for _, image in shown:
        assert 160 < max(image.size) <= 320  # enlarged, or the names have no room


def images_of(page):
    """`(name, image)` of each image, once the page shows it in its own size."""
    found = re.findall(
        r'alt="([^"]*)" width="(\d+)" height="(\d+)" '
        r'src="data:image/jpeg;base64,([^"]*)"',
        page,
    )
    assert len(found) == page.count("<img")
    images = []
    for name, width, height, code in found:
        image = Image.open(io.BytesIO(base64.b64decode(code)))
        assert image.size == (int(width), int(height))
        images.append((name, image))
    return images


def test_a_duplicate_is_shown_with_the_boxes_of_both(tmp_path):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 40, (64, 64, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    paths = [tmp_path / "a.png"] * 2  # one name, two versions of its boxes
    boxes = [[[4, 4, 20, 20]], [[30, 30, 60, 60]]]
    dataset = from_arrays(paths, boxes, [[0], [1]], ["cat", "dog"])
    report = check(dataset, model=None)
    (problem,) = report.by_kind()["duplicate image"]
    assert problem.image_ids == (1, 2)
    assert problem.detail == "same image as a.png, with other boxes"
    report.save(tmp_path / "a.html")
    problems, _, samples = (tmp_path / "a.html").read_text().partition("<h2>Boxes</h2>")
    assert samples
    first, second = (np.asarray(image) for _, image in images_of(problems))
    corner, center = (
        (slice(20, 100), slice(20, 100)),
        (slice(150, 300), slice(150, 300)),
    )
    assert first[corner].max() > 150 > first[center].max()
    assert second[center].max() > 150 > second[corner].max()


def test_of_two_images_of_one_name_that_with_the_problem_is_shown(tmp_path):
    records = []
    for image_id, grey in enumerate((20, 200), 1):
        path = tmp_path / str(image_id) / "1.png"
        path.parent.mkdir()
        Image.new("RGB", (64, 64), (grey, grey, grey)).save(path)
        boxes = [[4, 4, 20, 20]] if image_id == 1 else [[50, 50, 40, 40]]
        records.append(
            record_of(path, (64, 64), image_id, boxes, [0], file_name="1.png")
        )
    report = check(DetectionDataset(records, ["cat"]), model=None)
    (problem,) = report.by_kind()["clipped box"]
    assert (problem.file, problem.image_ids) == ("1.png", (2,))
    report.save(tmp_path / "a.html")
    problems, _, _ = (tmp_path / "a.html").read_text().partition("<h2>Boxes</h2>")
    ((_, shown),) = images_of(problems)
    assert np.asarray(shown)[10:100, 10:100].mean() > 150  # the second, which is bright


def test_an_empty_data_set_and_one_without_boxes_have_a_page(clean, tmp_path):
    no_boxes = [record.select(slice(0, 0)) for record in clean.records[:2]]
    for records in ([], no_boxes):
        for model in ("efficientdet-d0", None):
            report = check(DetectionDataset(records, ["cat"]), model=model)
            report.save(tmp_path / "report.html")
            assert tags_of((tmp_path / "report.html").read_text()).open == []


def bars_of(svg):
    tree = xml.etree.ElementTree.fromstring(svg)
    return [e for e in tree.iter() if e.tag == "rect"]


def test_bars_have_the_length_of_their_values():
    svg = charts.bars(["a", "b", "c"], [1.0, 4.0, 0.0], ["1", "4", "0"])
    first, second, third = (float(rect.get("width")) for rect in bars_of(svg))
    assert second == pytest.approx(4 * first, abs=0.3) and third == 1


def test_a_scatter_places_points_on_logarithmic_axes():
    points = np.array([[8.0, 8.0], [16.0, 32.0], [64.0, 8.0]])
    svg = charts.scatter(points, np.array([False, True, False]), points[:1], ("a", "b"))
    tree = xml.etree.ElementTree.fromstring(svg)
    first, second = tree.findall("g")
    x = [float(c.get("cx")) for c in (*first, *second)]
    y = [float(c.get("cy")) for c in (*first, *second)]
    assert x[2] - x[0] == pytest.approx((x[1] - x[0]) / 3, abs=0.2)
    assert y[0] == y[1] > y[2]
    many = charts.scatter(np.full((9000, 2), 4.0), np.zeros(9000, bool), points, "ab")
    assert many.count("<circle") == 3000


def test_the_guide_has_the_table_of_kinds():
    guide = pathlib.Path(__file__).parents[3] / "docs" / "inspect.md"
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", guide.read_text(), re.M)
    expected = {(k, v.severity.value, v.consequence) for k, v in KINDS.items()}
    assert set(rows[1:]) == expected


def test_findings_are_printed_also_if_their_file_cannot_be_written(
    shapes, read_only, tmp_path, capsys, monkeypatch
):
    assert cli.main(["inspect", str(shapes), "--json", str(read_only / "a.json")]) == 1
    assert "nothing can be written there" in capsys.readouterr().err

    def fails(*_):
        raise OSError("The disk is gone")

    monkeypatch.setattr("effdet_keras._internal.whole_files.write_text", fails)
    assert cli.main(["inspect", str(shapes), "--json", str(tmp_path / "a.json")]) == 1
    said = capsys.readouterr()
    assert "== train ==" in said.out and "The disk is gone" in said.err
