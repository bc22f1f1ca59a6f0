"""`effdet-keras predict --parts` and `merge`: each image once; docs/bulk.md."""

import glob
import hashlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image
from support.remote import memory_files, put_folder
from support.tiny import LITE0, lively_model

import effdet_keras as ek
from effdet_keras import cli
from effdet_keras.extras.bulk.batch_detector import BatchDetector
from effdet_keras.extras.bulk.merge import merge_parts
from effdet_keras.extras.bulk.parts import Parts, row_of_error
from effdet_keras.extras.bulk.shard import (
    Shard,
    detect_shard,
    model_digest,
    settings_of,
    sources_of,
)
from effdet_keras.extras.remote import files as remote_files
from effdet_keras.predictor import Predictor
from effdet_keras.weights.archive import write_archive

pytestmark = pytest.mark.tensorflow

ROOT = pathlib.Path(__file__).parents[3]
NAMES = [f"{folder}{number}.png" for folder in ("", "deep/er/") for number in range(7)]


@pytest.fixture(scope="module")
def model():
    return lively_model(backbone=LITE0, category_ids=(3, 5, 9))


@pytest.fixture(scope="module")
def archive(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "pets.keras"
    write_archive(model, path)
    return str(path)


@pytest.fixture
def images(tmp_path):
    rng = np.random.default_rng(5)
    for name in NAMES:
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40, 56, 3), "uint8")).save(path)
    (tmp_path / "images" / "notes.txt").touch()
    (tmp_path / "images" / ".hidden.png").touch()
    return tmp_path / "images"


class Finder:
    """Stands for a `BatchDetector`: a row per image, and a note of each."""

    def __init__(self, fails=lambda name: None):
        self.seen, self.fails = [], fails

    def stream(self, pairs):
        for name, _ in pairs:
            self.seen.append(name)
            error = self.fails(name)
            if isinstance(error, BaseException):
                raise error
            if error is not None:
                yield row_of_error(name, error)
                continue
            lists = {"category_id": [1], "label": ["cat"], "score": [0.5]}
            boxes = {"bbox": [[1.0, 2.0, 3.0, 4.0]]}
            size = {"width": 8, "height": 9}
            yield {"file_name": name, **size, **lists, **boxes, "error": None}


def run(folder, names, number=1, count=1, finder=None, part_images=3):
    """Runs a shard with a stand-in for the detector; which images it looked at."""
    finder, shard, parts = finder or Finder(), Shard(number, count), Parts(folder)
    parts.agree({"shards": count, "categories": [{"id": 1, "name": "cat"}]})
    sources = {name: name for name in sorted(names) if shard.has(name)}
    detect_shard(finder, sources, parts, shard, part_images=part_images)
    return finder.seen


def lines_of(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def test_an_empty_cell_ends_no_batch(model):
    nothing = [None, float("nan"), "a", np.zeros(3)]
    image = np.zeros((20, 30, 3), "uint8")
    detector = BatchDetector(Predictor(model), 0.0, batch_size=2)
    rows = detector.rows({"image": [*nothing, image], "path": list("12345")})
    assert [row["error"] is None for row in rows] == [False] * 4 + [True]
    assert [row["file_name"] for row in rows] == list("12345")
    assert "must be" in rows[0]["error"] and rows[4]["width"] == 30
    rows = detector.rows({"bytes": [*nothing, b""]})
    assert all(row["error"] for row in rows)


def test_shards_and_their_merge_are_what_one_detect_finds(
    archive, model, images, tmp_path, command
):
    parts, out = tmp_path / "parts", tmp_path / "found"
    flags = ["--parts", parts, "--batch-size", 4]
    for number in (1, 2, 3):
        shard = ["--shard", f"{number}/3", "--score-threshold", 0.4]
        command("predict", archive, images, *flags, *shard)
    assert "14 images" in command("merge", parts, f"{out}.jsonl")
    rows = lines_of(f"{out}.jsonl")
    assert [row["file_name"] for row in rows] == sorted(NAMES)
    for row in rows:
        expected = model.detect(images / row["file_name"], 0.4, verbose=0)
        found = row["annotations"]
        assert [a["label"] for a in found] == list(expected.names)
        boxes = [[x, y, x + w, y + h] for x, y, w, h in (a["bbox"] for a in found)]
        np.testing.assert_allclose(
            np.reshape(boxes, (-1, 4)), expected.boxes[:, [1, 0, 3, 2]], atol=0.02
        )
    assert any(row["annotations"] for row in rows)
    # As COCO it is a dataset.
    command("merge", parts, f"{out}.json")
    dataset = ek.data.from_coco(f"{out}.json", images)
    assert len(dataset) == 14 and dataset.category_ids == (3, 5, 9)
    annotations = json.loads(pathlib.Path(f"{out}.json").read_text())["annotations"]
    assert len(annotations) == sum(len(row["annotations"]) for row in rows)
    assert [a["id"] for a in annotations] == list(range(1, len(annotations) + 1))
    # Another score is another run, and nothing is overwritten unasked.
    shard = ["--shard", "1/3", "--score-threshold", 0.5]
    said = command("predict", archive, images, *flags, *shard, status=1)
    assert "begun with other settings ('score_threshold'): 0.4 then, 0.5 now" in said
    assert "already exists" in command("merge", parts, f"{out}.json", status=1)


def test_one_listing_of_a_folder_tells_the_versions_of_its_images(
    memory, tmp_path, monkeypatch
):
    """Of a million images each would else cost a listing of the million."""
    names = [f"{number}.png" for number in range(5)]
    for name in names:
        memory.pipe_file(f"/bucket/images/{name}", name.encode())
    asked = []
    for question in ("list_folder", "find_entry"):
        real = getattr(remote_files, question)
        monkeypatch.setattr(
            remote_files, question, lambda a, real=real: asked.append(a) or real(a)
        )

    def look():
        """Detects in what is new; the images, and how often the storage was asked."""
        asked.clear()
        finder, parts, shard = Finder(), Parts(tmp_path), Shard(1, 1)
        sources = sources_of(["memory://bucket/images"], shard)
        detect_shard(finder, sources, parts, shard, part_images=2)
        return finder.seen, len(asked)

    seen, count = look()
    assert seen == names and count <= 2
    memory.pipe_file("/bucket/images/3.png", b"another")
    assert look() == (["3.png"], count)


def test_inputs_and_outputs_may_be_at_addresses(archive, images, memory, command):
    put_folder(images, "/bucket/images")
    parts = "memory://bucket/parts"
    given = ["predict", archive, "memory://bucket/images", "--parts", parts]
    command(*given)
    before = memory_files()
    command(*given)  # nothing to do
    assert memory_files() == before
    command("merge", parts, "memory://bucket/found.jsonl")
    rows = memory_files()["/bucket/found.jsonl"].splitlines()
    assert [json.loads(row)["file_name"] for row in rows] == sorted(NAMES)


@pytest.mark.smoke
@pytest.mark.parametrize("count", [1, 4])
def test_the_file_is_the_same_however_it_was_found(tmp_path, count):
    names = [f"{number:03}.png" for number in range(40)]
    run(tmp_path / "once", names)
    merge_parts(tmp_path / "once", tmp_path / "once.jsonl")
    # In several runs, of which some find new images, and one twice at once.
    for some in (names[10:30:2], names[::3], names):
        for number in range(1, count + 1):
            run(tmp_path / "often", some, number, count, part_images=4)
    run(tmp_path / "twice", names[5:25], 1, count, part_images=7)
    for _, path in Parts(tmp_path / "twice").files():
        (tmp_path / "often" / path.name).write_bytes(path.read_bytes())
    assert merge_parts(tmp_path / "often", tmp_path / "often.jsonl") == (40, [])
    once, often = (tmp_path / f"{name}.jsonl" for name in ("once", "often"))
    assert once.read_bytes() == often.read_bytes()


def test_a_shard_goes_on_where_it_was_ended(tmp_path):
    names = [f"{number}.png" for number in range(8)]
    stopping = Finder(lambda name: KeyboardInterrupt() if name == "5.png" else None)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, names, finder=stopping)
    with pytest.raises(RuntimeError, match="not finished: 1/1"):
        merge_parts(tmp_path, tmp_path / "found.json")
    assert run(tmp_path, names) == ["5.png", "6.png", "7.png"]
    assert run(tmp_path, names) == []
    assert run(tmp_path, [*names, "10.png"]) == ["10.png"]
    assert merge_parts(tmp_path, tmp_path / "found.jsonl") == (9, [])


def test_a_part_that_was_cut_off_does_not_count(tmp_path):
    names = [f"{number}.png" for number in range(6)]
    run(tmp_path, names)
    (_, part), *_ = Parts(tmp_path).files()
    content = part.read_bytes()
    for broken in (content[:-20], content[: content.index(b"\n") + 1], b""):
        part.write_bytes(broken)
        with (
            pytest.warns(UserWarning, match="is damaged and ignored"),
            pytest.raises(RuntimeError, match="Run the shard again"),
        ):
            merge_parts(tmp_path, tmp_path / "found.jsonl")
        assert not (tmp_path / "found.jsonl").exists()
    lost = sorted(json.loads(line)["file_name"] for line in content.splitlines())
    with pytest.warns(UserWarning, match="is damaged"):
        assert run(tmp_path, names) == lost
    assert merge_parts(tmp_path, tmp_path / "found.jsonl") == (6, [])


def test_what_cannot_be_read_is_tried_again_and_told(tmp_path):
    names = ["a.png", "b.png", "c.png"]
    failing = Finder(lambda name: "no image" if name == "b.png" else None)
    with pytest.warns(UserWarning, match=r"'b.png' is left out: no image"):
        run(tmp_path, names, finder=failing)
    with pytest.warns(UserWarning, match="is left out"):
        assert run(tmp_path, names, finder=failing)[-1:] == ["b.png"]
    assert merge_parts(tmp_path, tmp_path / "bad.jsonl") == (3, ["b.png"])
    assert lines_of(tmp_path / "bad.jsonl")[1] == {
        "file_name": "b.png",
        "error": "no image",
    }
    merge_parts(tmp_path, tmp_path / "bad.json")
    content = json.loads((tmp_path / "bad.json").read_text())
    assert [image["file_name"] for image in content["images"]] == ["a.png", "c.png"]
    assert run(tmp_path, names) == ["b.png"]
    assert merge_parts(tmp_path, tmp_path / "good.jsonl") == (3, [])


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--shard", "1/2"], "add --parts FOLDER"),
        (["--parts=parts", "--shard", "3/2"], "I from 1 to N"),
        (["--parts=parts", "--shard", "two"], "I from 1 to N"),
        (["--parts=parts", "--json", "a.json"], "cannot be used with --parts"),
        (["--parts=parts", "--overwrite"], "--overwrite cannot be used with --p"),
        (["images/notes.txt", "--parts=parts"], "does not end like an image"),
        (["nowhere", "--parts=parts"], "There is no image or folder 'nowhere'"),
        (["images/deep/er", "--parts=parts"], "would both be"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(
    images, monkeypatch, command, flags, reason
):
    monkeypatch.chdir(images.parent)
    assert reason in command("predict", "none.keras", "images", *flags, status=1)


def test_a_merge_needs_a_folder_of_parts_and_a_known_ending(images, tmp_path, command):
    for name, reason in (
        ("found.json", "has no settings.json"),
        ("found.csv", ".json, .jsonl, .parquet"),
    ):
        assert reason in command("merge", images, tmp_path / name, status=1)


def link(path, target):
    path.symlink_to(target, target_is_directory=True)


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_links_in_a_circle_give_each_image_once(images, tmp_path):
    everything = Shard(1, 1)
    link(images / "up", images)
    link(images / "deep" / "up", images)
    link(images / "deep" / "er" / "root", "../..")
    link(images / "a", images / "deep" / "er")  # no circle, but seen before
    assert sorted(sources_of([images], everything)) == sorted(NAMES)
    # What is only behind a link is found, once, by the first of two names.
    (tmp_path / "elsewhere").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "elsewhere" / "new.png")
    link(tmp_path / "elsewhere" / "back", images)
    link(images / "z", tmp_path / "elsewhere")
    link(images / "m", tmp_path / "elsewhere")
    names = sources_of([images], everything)
    assert sorted(names) == sorted([*NAMES, "m/new.png"])
    found = [sources_of([images], Shard(number, 3)) for number in (1, 2, 3)]
    assert sorted(name for share in found for name in share) == sorted(names)


def own_files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_merge_never_replaces_what_it_reads(tmp_path, monkeypatch, command):
    parts = tmp_path / "parts"
    run(parts, ["a.png", "b.png"])
    before = own_files(parts)
    assert len(before) == 3
    (tmp_path / "link.json").symlink_to(parts / "settings.json")
    (tmp_path / "same").symlink_to(parts)
    monkeypatch.chdir(parts)
    for out in (
        *(parts / name for name in before),
        "settings.json",
        tmp_path / "link.json",
        tmp_path / "same" / "settings.json",
        parts / "rows-00002-of-00002-0123456789abcdef.jsonl",  # not there yet
        parts / "SETTINGS.json",  # the same file, on some disks
    ):
        said = command("merge", parts, out, "--overwrite", status=1)
        assert "is one of the files in the folder of parts" in said
        assert own_files(parts) == before
    for out in (parts / "found.json", parts / "found.json"):
        command("merge", parts, out, "--overwrite")
    assert "2 images" in command("merge", parts, tmp_path / "found.json")


def test_a_merge_at_an_address_never_replaces_what_it_reads(memory, tmp_path):
    run(tmp_path, ["a.png"])
    put_folder(tmp_path, "memory://parts")
    before = memory_files()
    with pytest.raises(ValueError, match="one of the files in the folder of parts"):
        merge_parts("memory://parts/", "memory://parts//settings.json", overwrite=True)
    assert memory_files() == before


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"images": -1}'])
@pytest.mark.parametrize("name", ["settings.json", "shard-00001-of-00001.json"])
def test_damaged_files_of_the_folder_are_plain_errors(tmp_path, command, name, content):
    run(tmp_path, ["a.png"])
    (tmp_path / name).write_bytes(content)
    said = command("merge", tmp_path, tmp_path / "found.json", status=1)
    assert f"{name}' is damaged (" in said
    assert "run" in said.partition("writes.")[2]
    assert "Traceback" not in said


def test_a_damaged_row_is_a_plain_error(tmp_path, command):
    data = b'{"file_name": "a.png"}\n'
    run(tmp_path, ["a.png"])
    digest = hashlib.sha256(data).hexdigest()[:16]
    (tmp_path / f"rows-00001-of-00001-{digest}.jsonl").write_bytes(data)
    said = command("merge", tmp_path, tmp_path / "found.json", status=1)
    assert "Line 1 of" in said and "is damaged" in said


def test_each_image_is_of_one_shard_and_stays_there(images):
    shares = [sources_of([images], Shard(number, 3)) for number in (1, 2, 3)]
    assert sorted(name for share in shares for name in share) == sorted(NAMES)
    (images / "new.png").touch()
    for number, share in enumerate(shares, 1):
        now = sources_of([images], Shard(number, 3))
        assert now.keys() - {"new.png"} == share.keys()


def test_parquet_has_the_rows_of_the_lines(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs `parquet`")
    names = ["a.png", "b.png", "c.png"]
    failing = Finder(lambda name: "no image" if name == "b.png" else None)
    with pytest.warns(UserWarning, match="is left out"):
        run(tmp_path, names, finder=failing)
    merge_parts(tmp_path, tmp_path / "found.parquet")
    rows = parquet.read_table(tmp_path / "found.parquet").to_pylist()
    assert [row["file_name"] for row in rows] == names
    assert [row["error"] for row in rows] == [None, "no image", None]
    assert rows[0]["bbox"] == [[1, 2, 3, 4]] and rows[0]["label"] == ["cat"]
    assert rows[1]["bbox"] == [] and rows[0]["category_id"] == [1]


def test_a_model_is_known_by_its_weights_or_its_file(model, archive, tmp_path):
    digest = model_digest(Predictor.load(archive))
    assert digest == model_digest(Predictor(model))
    other = lively_model(backbone=LITE0)
    other.weights[0].assign(other.weights[0] + 1.0)
    assert digest != model_digest(Predictor(other))
    model.export(tmp_path / "here" / "pets.tflite")
    exported = Predictor.load(tmp_path / "here" / "pets.tflite")
    digest = model_digest(exported)
    (tmp_path / "here").rename(tmp_path / "there")
    assert digest == model_digest(Predictor.load(tmp_path / "there" / "pets.tflite"))


def test_a_model_in_a_runtime_is_known_by_its_weights(model, tmp_path):
    """Its file was a temporary one; and a file is known whatever its name is."""
    for package in ("onnxruntime", "tf2onnx"):
        pytest.importorskip(package)
    digest = model_digest(Predictor(model))
    assert digest == model_digest(Predictor(model, runtime="onnx"))
    other = lively_model(backbone=LITE0)
    for weight in other.weights:
        weight.assign(weight * 1.01)
    assert digest != model_digest(Predictor(other, runtime="onnx"))
    found = set()
    for folder, one in (("here", model), ("there", other)):
        path = tmp_path / folder / "pets[1].onnx"
        one.export(path)
        found.add(model_digest(Predictor.load(path)))
        path.with_name("pets[1].int8.onnx").touch()  # another, whose name begins alike
        found.add(model_digest(Predictor.load(path)))
    assert len(found) == 2 and digest not in found


def test_the_precision_of_a_runtime_is_part_of_the_settings(model):
    for package in ("openvino", "tf2onnx"):
        pytest.importorskip(package)
    settings = []
    for precision in ("float32", "bfloat16"):
        try:
            predictor = Predictor(model, runtime="openvino", precision=precision)
        except ValueError as error:
            pytest.skip(f"{error}")
        settings.append(settings_of(BatchDetector(predictor), Shard(1, 1)))
    assert [one.pop("precision") for one in settings] == [None, "bfloat16"]
    assert settings[0] == settings[1]


def test_a_batch_of_a_table_becomes_rows(model, images):
    detector = BatchDetector(Predictor(model), 0.4, batch_size=3)
    paths = [str(images / name) for name in NAMES[:4]] + [str(images / "none.png")]
    by_path = detector.rows({"path": np.array(paths)})
    files = [pathlib.Path(path).read_bytes() for path in paths[:4]]
    by_bytes = detector.rows({"path": np.array(paths[:4]), "bytes": files})
    arrays = [np.asarray(Image.open(path)) for path in paths[:4]]
    by_image = detector.rows({"path": np.array(paths[:4]), "image": arrays})
    assert by_path[:4] == by_bytes == by_image
    assert [row["file_name"] for row in by_path] == paths
    assert by_path[4]["error"] is not None
    for row, path in zip(by_path, paths[:4]):
        assert len(row["score"]) == len(model.detect(path, 0.4, verbose=0))
    with pytest.raises(ValueError, match="needs a column 'path', 'bytes' or 'image'"):
        detector.rows({"file": []})


@pytest.mark.slow  # 17 seconds: processes that are killed and started again
@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_a_killed_worker_leaves_nothing_twice_and_nothing_half(
    archive, images, tmp_path
):
    rng = np.random.default_rng(6)
    for number in range(300):
        pixels = rng.integers(0, 256, (40, 56, 3), "uint8")
        Image.fromarray(pixels).save(images / f"more-{number:03}.png")
    parts = tmp_path / "parts"
    path = os.pathsep.join(map(str, [ROOT, *filter(None, sys.path)]))
    given = ["predict", archive, str(images), "--parts", str(parts)]
    given += ["--part-images", "4", "--batch-size", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "effdet_keras", *given],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 300
        while len(list(parts.glob("rows-*"))) < 2:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    found = [row for _, path in Parts(parts).files() for row in lines_of(path)]
    assert 8 <= len(found) < 314 and len(found) % 4 == 0
    with pytest.raises(RuntimeError, match="not finished"):
        merge_parts(parts, tmp_path / "found.jsonl")
    kept = {path: path.read_bytes() for _, path in Parts(parts).files()}
    assert cli.main(given) == 0
    assert all(path.read_bytes() == data for path, data in kept.items())
    rows = [row for _, path in Parts(parts).files() for row in lines_of(path)]
    names = [row["file_name"] for row in rows]
    assert len(names) == len(set(names)) == 314
    merge_parts(parts, tmp_path / "found.jsonl")
    predictor = Predictor.load(archive)
    for row in lines_of(tmp_path / "found.jsonl")[::50]:
        found = predictor.detect(images / row["file_name"], batch_size=2, verbose=0)
        assert [a["label"] for a in row["annotations"]] == list(found.names)


def picture(path, number, size=(40, 56)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (number, number, number)).save(path)


class Brightness(Finder):
    """Finds in each image a box whose score is its brightness."""

    def stream(self, pairs):
        for name, source in pairs:
            row = next(super().stream([(name, source)]))
            row["score"] = [float(np.asarray(Image.open(source)).mean())]
            yield row


def scores_of(folder, images, finder=None):
    """What a run over a folder and its merge give, by name."""
    shard, parts, finder = Shard(1, 1), Parts(folder), finder or Brightness()
    parts.agree({"shards": 1, "categories": [{"id": 1, "name": "cat"}]})
    detect_shard(finder, sources_of([images], shard), parts, shard, part_images=2)
    out = folder / ".." / "merged.jsonl"
    merge_parts(folder, out, overwrite=True)
    return {x["file_name"]: x["annotations"][0]["score"] for x in lines_of(out)}


def test_an_image_that_is_replaced_is_looked_at_again_and_no_other(tmp_path):
    for number in range(5):
        picture(tmp_path / "images" / f"{number}.png", 10 + number)
    scores_of(tmp_path / "parts", tmp_path / "images")
    for brightness in (200, 220):
        path = tmp_path / "images" / "3.png"
        picture(path, brightness)
        os.utime(path, ns=(0, brightness))
        finder = Brightness()
        scores = scores_of(tmp_path / "parts", tmp_path / "images", finder)
        assert finder.seen == ["3.png"]
        assert scores["3.png"] == brightness and scores["2.png"] == 12
        assert len(scores) == 5


# docs/bulk.md: its commands and programs are run, on real images.

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(language):
    text = (ROOT / "docs" / "bulk.md").read_text()
    return [code for kind, code in FENCE.findall(text) if kind == language]


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """A model, its ONNX export, and images, of which one is damaged."""
    folder = tmp_path_factory.mktemp("many")
    write_archive(model, folder / "pets.keras")
    rng = np.random.default_rng(5)
    (folder / "images").mkdir()
    for number in range(20):
        pixels = rng.integers(0, 256, (40, 56, 3), "uint8")
        Image.fromarray(pixels).save(folder / "images" / f"{number:02}.jpg")
    (folder / "images" / "03.jpg").write_bytes(b"no image")
    return folder


@pytest.fixture
def exported(model, folder):
    """The same folder, with `pets.onnx`, and the rows that one detector finds."""
    pytest.importorskip("tf2onnx", reason="needs the extra `onnx`")
    pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
    if not (folder / "pets.onnx").exists():
        model.export(folder / "pets.onnx", verbose=0)
    detector = BatchDetector(folder / "pets.onnx", 0.4)
    paths = sorted(glob.glob("images/*.jpg", root_dir=folder))
    rows = detector.rows({"path": [str(folder / path) for path in paths]})
    assert sum(map(len, (row["label"] for row in rows)))
    return [{**row, "file_name": path} for row, path in zip(rows, paths)]


def assert_found(rows, expected):
    rows = sorted(rows, key=lambda row: row["file_name"])
    assert [pathlib.Path(row["file_name"]).name for row in rows] == [
        pathlib.Path(row["file_name"]).name for row in expected
    ]
    assert [i for i, row in enumerate(rows) if row["error"] is not None] == [3]
    for row, same in zip(rows, expected):
        assert row["label"] == same["label"]
        np.testing.assert_allclose(row["score"], same["score"], atol=1e-3)


def test_the_commands_of_shards(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    commands = [line for line in blocks("sh")[0].splitlines() if line]
    statuses = [cli.main(shlex.split(command)[1:]) for command in commands]
    assert sorted(statuses) == [0, 0, 1]  # the shard of the damaged image
    found = json.loads((folder / "found.json").read_text())
    assert len(found["images"]) == 19 and found["annotations"]
    assert "could not be read: '03.jpg'" in capsys.readouterr().err


@pytest.mark.slow
def test_the_program_for_ray(folder, exported, monkeypatch):
    ray = pytest.importorskip("ray", reason="needs the extra `ray`")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra `ray`")
    (program,) = [code for code in blocks("python") if "import ray" in code]
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RAY_worker_niceness", "0")
    workers = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": workers})
    # The workers of Ray begin in a folder of their own.
    program = program.replace("images/*", f"{folder}/images/*")
    for name in ("pets.onnx", "found_by_ray"):
        program = program.replace(f'"{name}"', f'"{folder / name}"')
    try:
        exec(program, {})
    finally:
        ray.shutdown()
    assert_found(parquet.read_table(folder / "found_by_ray").to_pylist(), exported)


@pytest.mark.slow
def test_the_program_for_beam(folder, exported, monkeypatch):
    pytest.importorskip("apache_beam", reason="the guide's snippet for Beam")
    (program,) = [code for code in blocks("python") if "apache_beam" in code]
    monkeypatch.chdir(folder)
    exec(program, {"__name__": "program"})
    files = sorted(folder.glob("found_by_beam*.jsonl"))
    lines = [line for file in files for line in file.read_text().splitlines()]
    assert_found(map(json.loads, lines), exported)
