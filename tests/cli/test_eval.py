"""`effdet-keras eval`: numbers, findings, files and reports, for any detector."""

import errno
import json
import shutil

import pytest
from support.tiny import LITE0, lively_model

import effdet_keras as ek
from effdet_keras import cli
from effdet_keras.weights.archive import write_archive

pytestmark = pytest.mark.tensorflow

SHAPES = ("circle", "square", "triangle")


@pytest.fixture(scope="module")
def model():
    return lively_model(backbone=LITE0, class_names=SHAPES)


@pytest.fixture(scope="module")
def archive(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "shapes.keras"
    write_archive(model, path)
    return path


@pytest.fixture(scope="module")
def numbers(model, data):
    valid = ek.data.load(data, "valid")
    return ek.Predictor(model).evaluate(valid, verbose=False)


@pytest.fixture(scope="module")
def exact(data, tmp_path_factory):
    """A detector that is right in all but a third of the objects, as a file."""
    truth = json.loads((data / "valid.json").read_text())
    found = [
        {**{k: a[k] for k in ("image_id", "category_id", "bbox")}, "score": 0.9}
        for number, a in enumerate(truth["annotations"])
        if number % 3
    ]
    path = tmp_path_factory.mktemp("found") / "exact.json"
    path.write_text(json.dumps(found))
    return path


def run(*arguments):
    return cli.main(["eval", *map(str, arguments)])


def test_a_model_is_evaluated_and_all_is_written(
    archive, data, numbers, tmp_path, capsys
):
    out, found = tmp_path / "out", tmp_path / "found.json"
    assert run(archive, data, "--out", out, "--json", found, "--batch-size", 2) == 0
    said = capsys.readouterr()
    assert f"'{archive}' on the 4 images of 'valid':" in said.out
    assert f"AP50        {numbers['AP50']:.4f}" in said.out and not said.err
    for words in ("VOC 10", "circle", "localization", "What matters most"):
        assert words in said.out
    assert "\r" not in said.out.replace("\r\n", "")
    content = json.loads((out / "numbers.json").read_text())
    assert content["coco"] == pytest.approx(numbers, abs=1e-12)
    assert (content["split"], content["detector"]) == ("valid", str(archive))
    assert content["images per second"] > 0 and content["environment"]["packages"]
    page = (out / "report.html").read_text()
    assert "<h2>The worst images</h2>" in page and page.count("<img") >= 8
    assert f"{numbers['AP']:.4f}" in page

    # What was written is a file of detections, which comes to the same.
    assert run(data, "--detections", found, "--out", tmp_path / "again") == 0
    again = json.loads((tmp_path / "again" / "numbers.json").read_text())
    for name in ("coco", "voc", "confusion", "errors", "slices"):
        assert again[name] == content[name] or again[name] == pytest.approx(
            content[name], abs=1e-12
        )
    records = json.loads(found.read_text())
    assert set(records[0]) == {"image_id", "category_id", "bbox", "score"}
    pycocotools = pytest.importorskip("pycocotools.coco")
    server = pycocotools.COCO(str(data / "valid.json")).loadRes(str(found))
    assert len(server.anns) == len(records) == content["detections"]


def test_two_detectors_are_compared(archive, data, exact, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(archive, data, "--detections", exact, "--out", out) == 0
    said = capsys.readouterr().out
    assert f"first:  {archive}" in said and f"second: {exact}" in said
    assert "too few images with objects (" in said and "same weights" not in said
    content = json.loads((out / "numbers.json").read_text())
    first, second = (one["coco"]["AP"] for one in content["detectors"])
    ap = content["differences"]["AP"]
    assert (ap["first"], ap["second"]) == pytest.approx((first, second))
    assert 0 < ap["low"] <= ap["second"] - ap["first"] <= ap["high"]
    page = (out / "report.html").read_text()
    assert "Compared with another detector" in page and str(archive) in page


def test_two_detectors_on_images_without_objects(data, exact, tmp_path, capsys):
    content = json.loads((data / "valid.json").read_text())
    (tmp_path / "data").mkdir()
    empty = tmp_path / "data" / "valid.json"
    empty.write_text(json.dumps({**content, "annotations": []}))
    shutil.copytree(data / "valid", tmp_path / "data" / "valid")
    out = tmp_path / "out"
    both = ["--detections", exact, "--detections", exact]
    assert run(tmp_path / "data", *both, "--out", out) == 0
    assert "not compared: the ground truth has no objects" in capsys.readouterr().out
    numbers = json.loads((out / "numbers.json").read_text())
    assert len(numbers["detectors"]) == 2 and numbers["differences"] == {}
    assert (out / "report.html").is_file()


@pytest.mark.slow
def test_classes_in_another_order_are_put_in_order(data, exact, tmp_path):
    """The order of VOC's and YOLO's classes may depend on the split."""
    names = ("triangle", "circle", "square")
    path = tmp_path / "other.keras"
    write_archive(lively_model(backbone=LITE0, class_names=names), path)
    out = tmp_path / "out"
    assert run(path, data, "--out", out) == 0
    content = json.loads((out / "numbers.json").read_text())
    assert content["confusion"]["classes"] == [*SHAPES, "background"]
    valid = ek.data.load(data, "valid").with_classes(names)
    expected = ek.Predictor.load(path).evaluate(valid, verbose=False)
    assert content["coco"] == pytest.approx(expected, abs=1e-12)


def test_what_is_there_stays(archive, data, exact, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("mine")
    assert run(archive, data, "--out", out) == 1
    assert "report.html': existing files are not" in capsys.readouterr().err
    assert run(data, "--detections", exact, "--out", out, "--overwrite") == 0
    assert (out / "report.html").read_text() != "mine"
    before = exact.read_bytes()
    flags = ["--detections", exact, "--json", exact, "--overwrite"]
    assert run(data, *flags) == 1
    assert "would be overwritten" in capsys.readouterr().err
    assert exact.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["DATA"], "takes one model, or two"),
        (["a.keras", "b.keras", "DATA", "--json", "x.json"], "--json and"),
        (["a.keras", "DATA", "--out", "gs://bucket/out"], "must be on this machine"),
        (["nowhere.keras", "DATA"], "nowhere.keras"),
        (["DATA", "--detections", "EXACT", "--losses"], "--losses needs a model"),
        (["a.keras", "DATA", "--timeout", "5m"], "--timeout works only with"),
        (
            ["a.keras", "DATA", "--out", "new", "--json", "new/../new/numbers.json"],
            "'new/../new/numbers.json' is given for two outputs",
        ),
        (["DATA", "--detections", "DATA/valid.json"], "must be a list of detections"),
        (["DATA", "--detections", "EXACT", "--split", "tests"], "split='tests'"),
    ],
    ids=str,
)
def test_what_is_wrong_is_one_line(arguments, message, data, exact, capsys):
    known = {"DATA": str(data), "EXACT": str(exact)}
    arguments = [
        known.get(word, word.replace("DATA/", f"{data}/")) for word in arguments
    ]
    assert run(*arguments) == 1
    said = capsys.readouterr().err
    assert message in said and said.startswith("effdet-keras: ")
    assert len(said.splitlines()) == 1


def test_slices_of_a_file_are_printed_and_written(data, exact, tmp_path, capsys):
    images = json.loads((data / "valid.json").read_text())["images"]
    path, out = tmp_path / "light.csv", tmp_path / "out"
    rows = [f"{row['file_name']},<{'ab'[i > 0]}>" for i, row in enumerate(images)]
    path.write_text("\n".join(["file_name,light & dark", *rows]))
    flags = ["--detections", exact, "--slices", path]
    assert run(data, *flags, "--out", out) == 0
    said = capsys.readouterr().out
    slices = json.loads((out / "numbers.json").read_text())["slices"]["columns"]
    first, second = slices["light & dark"]
    assert (first["name"], first["num_images"], second["num_images"]) == ("<a>", 1, 3)
    assert f"<a>                1{first['num_objects']:>9}  {first['ap']:.3f}" in said
    page = (out / "report.html").read_text()
    assert "<h2>By light &amp; dark</h2>" in page and "<td>&lt;a&gt;</td>" in page
    assert "<h3>AP by light &amp; dark</h3>" in page
    path.write_text("\n".join(["file_name,light", *rows[1:]]))
    assert run(data, *flags) == 1
    said = capsys.readouterr().err
    assert "must have a row for every image of the dataset. Missing are 1 of 4" in said
    assert len(said.splitlines()) == 1


def test_the_file_of_a_detection_of_no_image_is_named(data, tmp_path, capsys):
    found = [{"image_id": 999, "category_id": 1, "bbox": [0, 0, 1, 1], "score": 0.5}]
    (tmp_path / "found.json").write_text(json.dumps(found))
    assert run(data, "--detections", tmp_path / "found.json") == 1
    said = capsys.readouterr().err
    assert "found.json': Each detection must have the `image_id` of an image" in said


def test_a_read_only_folder_is_told_before_the_evaluation(
    data, exact, read_only, capsys
):
    found = read_only / "found.json"
    assert run(data, "--detections", exact, "--json", found) == 1
    said = capsys.readouterr()
    assert f"nothing can be written there: '{found}'" in said.err
    assert "images of 'valid'" not in said.out


def test_the_numbers_are_printed_and_the_report_written_without_the_detections(
    data, exact, tmp_path, capsys, monkeypatch
):
    """As if the disk of the one file became full meanwhile."""
    found, out = tmp_path / "found.json", tmp_path / "out"

    def fails(*_):
        raise OSError(errno.ENOSPC, "No space left on device", str(found))

    monkeypatch.setattr("effdet_keras.cli.evaluate_files._write_detections", fails)
    assert run(data, "--detections", exact, "--json", found, "--out", out) == 1
    said = capsys.readouterr()
    assert "No space left" in said.err and "AP" in said.out
    assert (out / "report.html").exists() and (out / "numbers.json").exists()
