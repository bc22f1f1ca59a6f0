"""`inspect RUN DATA --suspects`: who judges which image, and what is written."""

import csv
import dataclasses
import shutil
import types

import pytest
from support.clips import write_clip, write_photo
from support.tiny_run import tiny_run

from effdet_keras import cli
from effdet_keras.data import load
from effdet_keras.evaluate.image_result import ImageResult
from effdet_keras.extras.data_check import suspects as module
from effdet_keras.extras.data_check.suspects import write_suspects
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.fine_tune import fine_tune
from effdet_keras.runs.run_folder import RunFolder

pytestmark = pytest.mark.tensorflow

# The image is 120 wide and 90 high; boxes as the detectors see them, yxyx in pixels.
RIGHT = [33.75, 45.0, 56.25, 75.0]


@pytest.fixture
def data(tmp_path):
    """Twelve photos of a cat each, of which three are annotated wrongly."""
    folder = tmp_path / "data"
    for k in range(12):
        write_photo(folder / f"photo{k}x.jpg", seed=k)
    (folder / "photo1x.txt").write_text("")  # the cat is missing
    (folder / "photo2x.txt").write_text("1 0.5 0.5 0.25 0.25\n")  # a dog
    (folder / "photo3x.txt").write_text(
        "0 0.5 0.5 0.25 0.25\n0 0.1 0.1 0.1 0.1\n"  # and one that is not there
    )
    (folder / "classes.txt").write_text("cat\ndog\n")
    return folder


@pytest.fixture
def judged(monkeypatch):
    """In the place of detectors: they find the cat of each image, and are noted."""
    calls = types.SimpleNamespace(trained=[], judged=[])

    def fine_tune(datasets, out, **fields):
        calls.trained.append((set(datasets["train"].image_ids), fields))
        return types.SimpleNamespace(model=f"fold {len(calls.trained)}")

    def image_results(model, dataset, **_):
        calls.judged.append((model, set(dataset.image_ids)))
        return [
            ImageResult(
                record.image_id,
                _yxyx(record.boxes_xywh),
                record.labels,
                [RIGHT],
                [0.9],
                [0],
                name=record.file_name,
            )
            for record in dataset.records
        ]

    monkeypatch.setattr(module, "fine_tune", fine_tune)
    monkeypatch.setattr(module, "image_results", image_results)
    monkeypatch.setattr(EfficientDet, "from_archive", lambda path: "the run")
    return calls


def _yxyx(boxes_xywh):
    boxes = boxes_xywh[:, [1, 0, 3, 2]].copy()
    boxes[:, 2:] += boxes[:, :2]
    return boxes


def a_run(path, data):
    folder = RunFolder(path)
    folder.path.mkdir()
    folder.begin(RunConfiguration(data=str(data), epochs=3))
    return path


def test_each_image_is_judged_by_a_detector_that_never_saw_it(data, judged, tmp_path):
    write_clip(data, "clip", seed=30, num_frames=6)
    run = a_run(tmp_path / "run", data)
    write_suspects(run, data, tmp_path / "out")
    ids = set(load(data).image_ids)
    of_folds = [(model, seen) for model, seen in judged.judged if "fold" in model]
    assert len(judged.trained) == len(of_folds) == 3
    for (trained, fields), (_, seen) in zip(judged.trained, of_folds):
        assert not trained & seen and fields["epochs"] == 3
    covered = [seen for _, seen in judged.judged]
    assert set.union(*covered) == ids and sum(map(len, covered)) == len(ids)


def test_frames_of_a_clip_are_in_one_fold(data, judged, tmp_path):
    write_clip(data, "clip", seed=30, num_frames=6)
    run = a_run(tmp_path / "run", data)
    write_suspects(run, data, tmp_path / "out")
    dataset = load(data)
    clip = {r.image_id for r in dataset.records if "clip" in r.file_name}
    known = set.union(*(trained for trained, _ in judged.trained))
    for trained, _ in judged.trained:
        assert not clip & known or trained & clip in (set(), clip & known)


def test_images_that_the_run_never_saw_are_judged_by_the_run(data, judged, tmp_path):
    other = tmp_path / "other"
    for k in range(10):
        write_photo(other / f"photo{k}x.jpg", seed=50 + k)
    (other / "classes.txt").write_text("cat\ndog\n")
    write_suspects(a_run(tmp_path / "run", other), data, tmp_path / "out")
    assert not judged.trained
    assert [model for model, _ in judged.judged] == ["the run"]


def test_detectors_of_other_folds_are_not_used(data, judged, tmp_path, monkeypatch):
    """They may have been trained on the images that they are to judge."""
    run, out = a_run(tmp_path / "run", data), tmp_path / "out"
    write_suspects(run, data, out, least_suspicion=0.9)
    write_suspects(run, data, out, least_suspicion=0.9)  # the same: it continues
    judged.trained.clear()
    with pytest.raises(RuntimeError, match="`num_folds`. Received: 2, before: 3"):
        write_suspects(run, data, out, folds=2)
    RunFolder(run).begin(RunConfiguration(data=str(data), epochs=4))
    with pytest.raises(RuntimeError, match="`fields`.*'epochs': 4.*'epochs': 3"):
        write_suspects(run, data, out)
    RunFolder(run).begin(RunConfiguration(data=str(data), epochs=3))
    (data / "photo5x.txt").write_text("1 0.5 0.5 0.25 0.25\n")
    with pytest.raises(RuntimeError, match="out_folds' was .* value of `training_i"):
        write_suspects(run, data, out)
    (tmp_path / "out_folds" / "folds.json").unlink()
    first = RunFolder(tmp_path / "out_folds" / "1")
    first.path.mkdir()
    first.begin(RunConfiguration())
    with pytest.raises(RuntimeError, match="no folds.json.*Remove that folder"):
        write_suspects(run, data, out)
    assert not judged.trained


def test_an_image_that_cannot_be_read_is_not_judged(
    data, judged, tmp_path, monkeypatch
):
    results = module.image_results

    def without_detections(model, dataset, **options):
        return [
            dataclasses.replace(result, boxes=[], scores=[], labels=[])
            if result.name in ("photo4x.jpg", "photo5x.jpg")
            else result
            for result in results(model, dataset, **options)
        ]

    monkeypatch.setattr(module, "image_results", without_detections)
    run = a_run(tmp_path / "run", data)
    photo = (data / "photo4x.jpg").read_bytes()
    (data / "photo4x.jpg").write_bytes(photo[: len(photo) // 2])
    with pytest.warns(UserWarning, match="1 image cannot be read.*'photo4x.jpg'"):
        found = write_suspects(run, data, tmp_path / "out", least_suspicion=0.0)
    kinds = {suspect.name: suspect.kind for suspect in found}
    assert "photo4x.jpg" not in kinds and kinds["photo5x.jpg"] == "unfound"


def test_the_proposal_has_what_is_missing_and_the_other_class(data, judged, tmp_path):
    run = a_run(tmp_path / "run", data)
    found = write_suspects(run, data, tmp_path / "out", least_suspicion=0.05)
    kinds = {suspect.name: suspect.kind for suspect in found}
    expected = {"photo1x.jpg": "missing", "photo2x.jpg": "wrong class"}
    assert kinds == {**expected, "photo3x.jpg": "unfound"}
    proposal = load(tmp_path / "out")
    labels = {
        record.file_name.partition("_")[2]: record.labels.tolist()
        for record in proposal.records
    }
    assert labels["photo1x.jpg"] == [0] and labels["photo2x.jpg"] == [0]
    assert labels["photo3x.jpg"] == [0, 0]  # whether it is there, people say
    with open(tmp_path / "out" / "suspects.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    suspicions = [float(row["suspicion"]) for row in rows]
    assert suspicions == sorted(suspicions, reverse=True)
    (wrong,) = (row for row in rows if row["kind"] == "wrong class")
    assert (wrong["class"], wrong["found_class"]) == ("dog", "cat")
    assert wrong["written_as"] in {record.file_name for record in proposal.records}


def test_what_is_doubted_less_is_left_out(data, judged, tmp_path):
    run = a_run(tmp_path / "run", data)
    found = write_suspects(run, data, tmp_path / "out", least_suspicion=0.5)
    assert {suspect.kind for suspect in found} == {"missing", "wrong class"}
    none = write_suspects(run, data, tmp_path / "none", folds=2, least_suspicion=0.9)
    assert none == [] and not (tmp_path / "none").exists()


def test_the_command_says_what_it_needs(data, judged, tmp_path, capsys):
    run, out = str(a_run(tmp_path / "run", data)), str(tmp_path / "out")
    assert cli.main(["inspect", run, "--suspects", out]) == 1
    assert "inspect RUN DATA --suspects FOLDER" in capsys.readouterr().err
    assert cli.main(["inspect", run, str(data)]) == 1
    assert cli.main(["inspect", str(data), str(data), "--suspects", out]) == 1
    assert "is not the folder of a run" in capsys.readouterr().err
    line = ["inspect", run, str(data), "--suspects", out, "--to", "labelstudio"]
    assert cli.main(line) == 0
    assert "1 missing" in capsys.readouterr().out
    assert (tmp_path / "out" / "tasks.json").is_file()
    assert cli.main(line) == 1
    assert "already exists. Give the path of a new folder" in capsys.readouterr().err


def test_the_command_refuses_options_that_it_would_not_use(
    data, judged, tmp_path, capsys
):
    run, out = str(a_run(tmp_path / "run", data)), str(tmp_path / "out")
    line = ["inspect", run, str(data), "--suspects", out]
    assert cli.main([*line, "--overwrite", "--html", "x.html", "--augment"]) == 1
    message = capsys.readouterr().err
    assert "options=['--html', '--augment', '--overwrite']" in message
    assert not judged.judged


def test_images_that_are_not_annotated_yet_are_left_out(data, judged, tmp_path):
    """Not learned as images without objects, and not doubted."""
    (data / "photo1x.txt").unlink()
    run, out = str(a_run(tmp_path / "run", data)), str(tmp_path / "out")
    line = ["inspect", run, str(data), "--suspects", out, "--unlabelled", "skip"]
    assert cli.main(line) == 0
    assert len(set.union(*(seen for _, seen in judged.judged))) == 11


def test_what_cannot_be_read_is_left_out_and_told(data, judged, tmp_path, capsys):
    """Then nobody knows what the run held out: it does not judge itself."""
    (data / "photo1x.txt").write_text("0 0.5\n")
    run, out = str(a_run(tmp_path / "run", data)), str(tmp_path / "out")
    capsys.readouterr()
    assert cli.main(["inspect", run, str(data), "--suspects", out]) == 0
    said = capsys.readouterr().err
    assert "found 1 bad box: " in said
    assert "was trained on cannot be read, so all images are judged by" in said
    assert len(judged.trained) == 3 and all("fold" in m for m, _ in judged.judged)


@pytest.mark.slow
def test_suspects_of_real_trainings(data, tmp_path):
    """A second call opens the detectors of the first."""
    run, out = tmp_path / "run", tmp_path / "out"
    fine_tune(data, out=run, **tiny_run(steps=1))
    write_suspects(run, data, out, folds=2, least_suspicion=0.0)
    trained = sorted((tmp_path / "out_folds").glob("*/finished.json"))
    assert [path.parent.name for path in trained] == ["1", "2"]
    times = [path.stat().st_mtime_ns for path in trained]
    shutil.rmtree(out, ignore_errors=True)
    write_suspects(run, data, out, folds=2, least_suspicion=0.0)
    assert [path.stat().st_mtime_ns for path in trained] == times
