"""The table of what each file is worth: what it says, and what it does not praise."""

import json

import pytest
from support.html_tags import Tags

from effdet_keras.extras.benchmark.files_report import FileNumbers, FilesReport

LIVE = FileNumbers("live model", ap=0.5, median_ms=40.0, p95_ms=44.0, megabytes=16.0)
SAME = FileNumbers(
    "onnx", ap=0.5, ap_lost=0.0, lost_low=-0.001, lost_high=0.002, median_ms=20.0
)
LOSES = FileNumbers(
    "litert-int8",
    ap=0.45,
    ap_lost=0.05,
    lost_low=0.02,
    lost_high=0.08,
    precision="int8",
    suppression="hard NMS",
)
GAINS = FileNumbers(
    "litert", ap=0.52, ap_lost=-0.02, lost_low=-0.03, lost_high=-0.01, peak_mb=120.0
)
MISSING = FileNumbers("<coral>", reason="missing package: pip install x | y")


def report(*rows, num_images=64):
    return FilesReport("efficientdet-lite0", num_images, 30, (LIVE, *rows))


def test_numbers_stand_below_their_names_and_reasons_at_the_end():
    lines = str(report(SAME, LOSES, MISSING)).splitlines()
    assert lines[0] == (
        "efficientdet-lite0: 64 images with objects, 30 timed runs of each file"
    )
    assert lines[3].split() == [
        "live",
        "model",
        "0.5000",
        "-",
        "-",
        *"40.0 44.0 16.0 -".split(),
    ]
    assert lines[5].split()[:6] == [
        "litert-int8",
        "0.4500",
        "+0.0500",
        "+0.0200",
        "to",
        "+0.0800",
    ]
    assert lines[-2:] == ["Did not run:", "<coral>: missing package: pip install x | y"]


@pytest.mark.parametrize(
    ("row", "num_images", "told"),
    [
        (SAME, 64, ()),
        (
            LOSES,
            64,
            ("its AP is lower than", "suppression (hard NMS)", "rounded to 8 bits"),
        ),
        (
            GAINS,
            64,
            ("higher than that of the live model", "no reason to choose", "by chance"),
        ),
        (GAINS, 12, ("with so few images (12)", "no reason to choose")),
    ],
)
def test_an_interval_without_zero_is_explained(row, num_images, told):
    sentences = report(row, num_images=num_images).explanations
    assert len(sentences) == bool(told)
    for words in told:
        assert words in sentences[0]
        assert "better" not in sentences[0]


def test_a_loss_without_a_cause_is_to_be_reported():
    row = FileNumbers("onnx", ap=0.4, ap_lost=0.1, lost_low=0.05, lost_high=0.2)
    assert "nothing in the file explains it" in report(row).explanations[0]


def test_json_markdown_and_page_have_the_same(tmp_path):
    made = report(SAME, LOSES, MISSING)
    made.save(tmp_path / "benchmark.json")
    saved = json.loads((tmp_path / "benchmark.json").read_text())
    assert [row["name"] for row in saved["rows"]] == [row.name for row in made.rows]
    assert saved["rows"][2]["lost_high"] == 0.08
    assert saved["explanations"] == made.explanations
    text = made.markdown()
    assert "| litert-int8 | 0.4500 | +0.0500 | +0.0200 to +0.0800 |" in text
    assert "\n- <coral>: missing package" in text
    page = made.html()
    assert not Tags(page).open
    assert "<coral>" not in page and "&lt;coral&gt;" in page
    for words in ("AP lost against the live model", "Milliseconds", "megabytes"):
        assert words in page
    # A dot for each of the two files that are compared, and zero between them.
    assert page.count('<circle class="point"') == 2
    assert 'class="diagonal"' in page


def test_what_could_not_be_timed_is_told_too():
    row = FileNumbers(
        "onnx", ap=0.5, ap_lost=0.0, time_reason="not timed: out of memory"
    )
    assert "onnx: not timed: out of memory" in str(report(row))


def test_a_file_for_a_device_was_checked_and_did_not_fail():
    row = FileNumbers("hailo", megabytes=13.0, check="only its structure was checked")
    made = report(row, MISSING)
    assert made.checked == [("hailo", "13.0 MB, only its structure was checked")]
    assert [name for name, _ in made.not_run] == ["<coral>"]
    first, second = str(made).split("Written for a device:")
    assert "hailo" not in first
    assert second.split("Did not run:")[0].strip() == (
        "hailo: 13.0 MB, only its structure was checked"
    )
    assert "\n- hailo: 13.0 MB" in made.markdown()
    assert made.html().index("Written for a device") < made.html().index("Did not run")
