"""`effdet-keras predict`."""

import csv
import json
import types

import numpy as np
import pytest
from PIL import Image
from support import programs
from support.tiny import LITE0, lively_model

import effdet_keras as ek
from effdet_keras import cli
from effdet_keras.cli import predict_files as module
from effdet_keras.cli.predict_files import names_of
from effdet_keras.weights.archive import write_archive

pytestmark = pytest.mark.tensorflow
NAMES = ["a.png", "b.bmp", "c.gif"]


@pytest.fixture(scope="module")
def model():
    return lively_model(backbone=LITE0, category_ids=(3, 5, 9))


@pytest.fixture(scope="module")
def archive(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "pets.keras"
    write_archive(model, path)
    return path


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    rng = np.random.default_rng(5)
    for name in NAMES:
        pixels = rng.integers(0, 256, (40, 56, 3), "uint8")
        Image.fromarray(pixels).save(folder / name)
    return folder


@pytest.fixture
def found(tmp_path):
    """The file for `--json`."""
    return tmp_path / "found.json"


@pytest.mark.smoke
def test_a_folder_is_drawn_and_its_boxes_are_written(
    archive, model, images, found, tmp_path, command
):
    out = tmp_path / "out"
    options = ["--out", out, "--json", found, "--score-threshold", "0.4"]
    lines = command("predict", archive, images, *options).splitlines()
    expected = model.detect(images, 0.4, batch_size=1, verbose=0)
    for path, line, one in zip(sorted(images.iterdir()), lines, expected):
        assert line.startswith(f"{path}: {len(one)} detections: ")
    assert sorted(path.name for path in out.iterdir()) == NAMES
    drawn = np.asarray(Image.open(out / "b.bmp"))
    np.testing.assert_array_equal(drawn, expected[1].draw())

    content = json.loads(found.read_text())
    assert [image["file_name"] for image in content["images"]] == NAMES
    names = {c["id"]: c["name"] for c in content["categories"]}
    assert names == {3: "cat", 5: "dog", 9: "bird"}
    first = [a for a in content["annotations"] if a["image_id"] == 1]
    assert len(first) == len(expected[0])
    assert first[0]["score"] == pytest.approx(expected[0].scores[0], abs=1e-4)
    left, top, width, height = first[0]["bbox"]
    box = [top, left, top + height, left + width]
    np.testing.assert_allclose(box, expected[0].boxes[0], atol=0.01)
    assert first[0]["category_id"] == (3, 5, 9)[expected[0].labels[0]]
    # It is a dataset, too: truth to begin annotating with.
    dataset = ek.data.from_coco(found, images)
    assert len(dataset) == 3 and dataset.category_ids == (3, 5, 9)


def test_what_cannot_be_read_is_left_out_and_told(archive, images, found, command):
    (images / "b.bmp").write_bytes(b"no image")
    flags = ["--json", found, "--batch-size", 2]
    assert "b.bmp' is left out" in command("predict", archive, images, *flags, status=1)
    names = [image["file_name"] for image in json.loads(found.read_text())["images"]]
    assert names == ["a.png", "c.gif"]
    said = command("predict", archive, "nowhere.jpg", status=1)
    assert "There is no image, folder or video 'nowhere.jpg'" in said


def test_a_link_to_nowhere_is_a_missing_image(archive, images, command):
    (images / "d.png").symlink_to("gone.png")
    assert "d.png' is left out" in command("predict", archive, images, status=1)


def test_a_batch_of_no_images_is_refused(archive, images, command):
    said = command("predict", archive, images, "--batch-size", 0, status=1)
    assert "`batch_size` must be a whole number of at least 1" in said


@pytest.mark.parametrize("option", ["out", "json_path"])
def test_an_address_is_refused_before_any_work(tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"`{option}` must be on this machine"):
        module.predict_files(None, ["cat.png"], **{option: "gs://bucket/found"})
    assert list(tmp_path.iterdir()) == []


def test_classes_are_kept_in_text_drawing_and_files(archive, images, found, command):
    flags = ["--score-threshold", 0.2, "--json", found, "--classes", "cat, bird"]
    assert "dog" not in command("predict", archive, images, *flags)
    content = json.loads(found.read_text())
    assert {a["category_id"] for a in content["annotations"]} == {3, 9}
    said = command("predict", archive, images, "--classes", "cow", status=1)
    assert "'cat', 'dog', 'bird'" in said and "classes='cow'" in said


def test_crops_are_the_boxes_in_folders_of_their_classes(
    archive, model, images, tmp_path, command
):
    Image.open(images / "a.png").save(images / "a.bmp")  # of one stem
    out = tmp_path / "crops"
    flags = ["--score-threshold", 0.4, "--crops", out]
    command("predict", archive, images, *flags)
    expected = {}
    for path in sorted(images.iterdir()):
        found = model.detect(path, 0.4, batch_size=1)
        for number, one in enumerate(found, start=1):
            expected[f"{one.names[0]}/{path.name}-{number}.png"] = one.crops()[0]
    written = {p.relative_to(out).as_posix() for p in out.rglob("*.png")}
    assert written == {name for name, crop in expected.items() if crop.size}
    for name in written:
        np.testing.assert_array_equal(Image.open(out / name), expected[name])
    assert "existing files" in command("predict", archive, images, *flags, status=1)
    single = tmp_path / "single"
    command("predict", archive, images / "c.gif", *flags[:-1], single)
    names = {path.name for path in single.rglob("*.png")}
    assert "c-1.png" in names and all(name.startswith("c-") for name in names)


def test_crops_replace_no_image_that_is_read(archive, images, command):
    inner = images / "cat"
    inner.mkdir()
    path = (images / "a.png").rename(inner / "a-1.png")
    before = path.read_bytes()
    flags = ["--crops", images, "--overwrite"]
    said = command("predict", archive, inner, *flags, status=1)
    assert "which crops could replace" in said and "a-1.png" in said
    assert path.read_bytes() == before


def test_two_outputs_have_two_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (8, 8)).save("cat.png")
    for outputs in (
        {"json_path": "found", "csv_path": tmp_path / "found"},
        {"json_path": "drawn/cat.png", "out": "drawn"},
    ):
        with pytest.raises(ValueError, match="is given for two outputs"):
            module.predict_files(None, ["cat.png"], **outputs, overwrite=True)


def test_a_folder_of_a_storage_stands_for_its_images(memory):
    for name in ("b.jpg", "a.png", "notes.txt", "deeper/c.jpg"):
        memory.pipe_file(f"/bucket/images/{name}", b"")
    found = module._find_sources(["memory://bucket/images", "rtsp://camera/1"])
    assert list(map(str, found)) == [
        "memory://bucket/images/a.png",
        "memory://bucket/images/b.jpg",
        "rtsp://camera/1",
    ]
    for name in ("nowhere", "clip.mp4"):
        with pytest.raises(FileNotFoundError, match="Videos of a storage must be"):
            module._find_sources([f"memory://bucket/{name}"])


def test_no_input_is_written_over(archive, images, tmp_path, command):
    first = images / "a.png"
    before = first.read_bytes()
    for arguments in (
        [images, "--out", images],
        [first, "--out", images],
        [first, "--json", archive],
        [first, "--json", first, "--overwrite"],
    ):
        said = command("predict", archive, *arguments, status=1)
        assert "would be overwritten" in said
    assert first.read_bytes() == before

    # What is there stays, and two images of one name get two names.
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.png").write_bytes(before)
    out = tmp_path / "out"
    arguments = ["predict", archive, first, tmp_path / "more" / "a.png", "--out", out]
    command(*arguments)
    written = sorted(out.rglob("*.png"))
    parts = [path.relative_to(out).as_posix() for path in written]
    assert parts == ["images/a.png", "more/a.png"]
    written[0].write_bytes(b"mine")
    assert "a.png': existing files are not" in command(*arguments, status=1)
    assert written[0].read_bytes() == b"mine"
    command(*arguments, "--overwrite")
    assert written[0].read_bytes() != b"mine"


@pytest.mark.slow
def test_tiles_and_augmentation_are_those_of_the_predictor(
    archive, model, images, command
):
    image = images / "a.png"
    found = ek.Predictor(model).detect(image, tiles=32, augment=True)
    said = command("predict", archive, image, "--tiles", 32, "--tta")
    assert said == f"{image}: {repr(found).splitlines()[0]}\n"


@pytest.mark.parametrize(
    "many, options, expected",
    [
        (2, [], "auto"),
        (200, [], None),
        (2, ["--runtime", "keras"], None),
        (200, ["--runtime", "onnx"], "onnx"),
    ],
)
def test_many_images_are_worth_a_conversion(
    monkeypatch, archive, images, command, many, options, expected
):
    monkeypatch.setattr(module, "_MANY", many)
    given = []
    load = lambda *_, runtime, **__: given.append(runtime)  # noqa: E731
    monkeypatch.setattr(ek.Predictor, "load", load)
    monkeypatch.setattr(module, "predict_files", lambda *_, **__: 0)
    command("predict", archive, images, *options)
    assert given == [expected]


def test_a_table_has_a_row_for_each_box(archive, images, found, tmp_path, command):
    table = tmp_path / "found.csv"
    options = ["--json", found, "--csv", table, "--score-threshold", "0.4"]
    assert f"Wrote '{table}'" in command("predict", archive, images, *options)
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file))
    content = json.loads(found.read_text())
    assert len(rows) == len(content["annotations"])
    first, box = rows[0], content["annotations"][0]
    names = {c["id"]: c["name"] for c in content["categories"]}
    assert (first["image"], first["class"]) == ("a.png", names[box["category_id"]])
    assert (first["video"], first["frame"], first["track_id"]) == ("", "", "")
    left, top, width, height = box["bbox"]
    corners = [float(first[name]) for name in ("left", "top", "right", "bottom")]
    np.testing.assert_allclose(
        corners, [left, top, left + width, top + height], atol=0.01
    )
    assert "not overwritten" in command(
        "predict", archive, images, "--csv", table, status=1
    )


def test_numbers_of_followed_objects_are_in_both_files(tmp_path):
    """The video is made up: what `detect_video` yields is written."""
    frame = np.zeros((40, 60, 3), np.uint8)

    def detect_video(source, target, *, track, **_):
        assert track and target is None
        for number in range(2):
            yield ek.Detections(
                [[2, 4, 20, 30]],
                [0.9],
                [1],
                ("cat", "dog"),
                image=frame,
                image_id=number,
                track_ids=[7],
            )

    config = types.SimpleNamespace(num_classes=2)
    predictor = types.SimpleNamespace(
        config=config,
        category_ids=None,
        class_names=("cat", "dog"),
        detector=None,
        detect_video=detect_video,
    )
    clip = tmp_path / "clip.mp4"
    clip.touch()
    paths = {"json_path": tmp_path / "f.json", "csv_path": tmp_path / "f.csv"}
    module.predict_files(predictor, [clip], track=True, **paths)
    content = json.loads(paths["json_path"].read_text())
    assert [row["track_id"] for row in content["annotations"]] == [7, 7]
    with open(paths["csv_path"], newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["video"], r["frame"], r["track_id"]) for r in rows] == [
        ("clip.mp4", "0", "7"),
        ("clip.mp4", "1", "7"),
    ]


@pytest.fixture
def clip(tmp_path):
    """A video of two frames of 96 x 32 pixels."""
    cv2 = pytest.importorskip("cv2")
    path = tmp_path / "clip.avi"
    codec = cv2.VideoWriter_fourcc(*"MJPG")
    writer = cv2.VideoWriter(str(path), codec, 5.0, (96, 32))
    for shade in (40, 200):
        writer.write(np.full((32, 96, 3), shade, "uint8"))
    writer.release()
    return path


@pytest.mark.slow
def test_a_video_is_drawn_frame_by_frame(archive, clip, found, tmp_path, command):
    cv2 = pytest.importorskip("cv2")
    out = tmp_path / "out"
    said = command("predict", archive, clip, "--out", out, "--json", found)
    assert f"{clip} frame 1: " in said
    assert cv2.VideoCapture(str(out / "clip.avi")).get(cv2.CAP_PROP_FRAME_COUNT) == 2
    images = json.loads(found.read_text())["images"]
    frames = [(image["video"], image["frame"]) for image in images]
    assert frames == [("clip.avi", 0), ("clip.avi", 1)]
    # Images and videos may be mixed; a camera that is not there is told.
    assert "cannot open 77" in command("predict", archive, 77, status=1)


def test_no_two_sources_have_one_name_in_the_output(tmp_path):
    a, b = tmp_path / "a", tmp_path / "a" / ".." / "b"
    images = [a / "cat.png", b / "dog.png"]
    assert list(names_of(images).values()) == ["cat.png", "dog.png"]
    names = names_of([*images, b / "cat.png"])
    assert list(names.values()) == ["a/cat.png", "b/dog.png", "b/cat.png"]
    videos = [a / "clip.mp4", b / "clip.avi", 0]
    assert list(names_of(videos).values()) == ["a/clip", "b/clip", "camera-0"]
    frame = a / "clip-frame-000001.jpg"  # as frames are called that were cut out before
    assert list(names_of([a / "clip.mp4", frame]).values()) == ["clip.mp4", frame.name]
    with pytest.raises(ValueError, match="run the command once for each"):
        (a / "x").mkdir(parents=True)
        clips = [a / "x" / "clip.mp4", a / "x" / "clip.avi"]
        for clip in clips:
            clip.touch()
        module.predict_files(None, clips, tmp_path / "out")


@pytest.mark.parametrize("error, status", [(KeyboardInterrupt, 130), (OSError, 1)])
def test_what_was_found_until_it_stopped_is_kept(
    archive, images, found, monkeypatch, command, error, status
):
    detect, calls = ek.Predictor.detect, []

    def stops(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 3:
            raise error
        return detect(*arguments, **options)

    monkeypatch.setattr(ek.Predictor, "detect", stops)
    command("predict", archive, images, "--json", found, status=status)
    names = [image["file_name"] for image in json.loads(found.read_text())["images"]]
    assert names == NAMES[:2]


def test_the_command_opens_an_archive_in_a_process_of_its_own(archive, tmp_path):
    """There only what a command imports has registered its classes with Keras."""
    path = tmp_path / "black.png"
    Image.new("RGB", (40, 30)).save(path)
    said = programs.run_alone("-m", "effdet_keras", "predict", archive, path)
    assert "black.png: " in said


@pytest.mark.parametrize("flag", ["--out", "--crops"])
def test_a_file_as_output_folder_is_told_before_the_model_is_opened(
    images, tmp_path, capsys, flag
):
    (tmp_path / "notes").write_text("mine")
    words = ["predict", "missing.keras", str(images), flag, str(tmp_path / "notes")]
    assert cli.main([*words, "--overwrite"]) == 1
    assert "notes' is a file" in capsys.readouterr().err


def test_a_read_only_folder_is_told_before_the_model_is_opened(
    images, read_only, command
):
    for flag in ("--json", "--csv", "--crops", "--out"):
        path = read_only / "new"
        said = command("predict", "missing.keras", images, flag, path, status=1)
        assert f"nothing can be written there: '{path}'" in said


def test_a_file_that_cannot_be_written_does_not_lose_the_other(
    archive, images, found, tmp_path, monkeypatch, command
):
    def fails(*_):
        raise OSError("The disk is gone")

    for failing in ("write", "write_csv"):
        table = tmp_path / f"{failing}.csv"
        files = ("--json", found, "--csv", table)
        with monkeypatch.context() as patch:
            patch.setattr(f"effdet_keras.cli.predict_files._COCOFile.{failing}", fails)
            said = command("predict", archive, images, *files, status=1)
        assert "The disk is gone" in said
        assert (found.exists(), table.exists()) == (
            failing == "write_csv",
            failing == "write",
        )
