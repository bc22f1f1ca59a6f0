"""`batch_size="auto"`: measured in a child process, which may be killed."""

import json
import pathlib
import signal
import sys
import types

import numpy as np
import pytest
from support.tiny import tiny_model
from support.tiny_run import MODEL_CONFIG, tiny_run

import effdet_keras as ek
from effdet_keras.extras import batch_size
from effdet_keras.extras.batch_size import with_batch_size
from effdet_keras.runs.components import (
    choose_splits,
    make_model,
    training_batches,
)
from effdet_keras.runs.requested import build_configuration
from effdet_keras.weights.archive import write_archive

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def splits(shapes, capsys):
    return choose_splits(ek.RunConfiguration(data=str(shapes)))


def child(monkeypatch, *sizes, end="", code=None):
    """A child that did sizes, and then ends as some Python code does."""
    text = "".join(f"{size}\n" for size in sizes)
    script = code or (
        "import json, os, sys, time; "
        "out = open(json.load(open(sys.argv[1]))['out'], 'a'); "
        f"out.write({text!r}); out.flush(); {end}"
    )
    monkeypatch.setattr(batch_size, "_COMMAND", (sys.executable, "-c", script))


def choose(splits, **fields):
    return batch_size.choose_batch_size(ek.RunConfiguration(**fields), splits)


def test_the_last_size_that_was_done_survives_a_kill(monkeypatch, splits, capsys):
    kill = f"out.write('4'); out.flush(); os.kill(os.getpid(), {signal.SIGKILL})"
    child(monkeypatch, 1, 2, end=kill)
    assert choose(splits) == 2
    said = capsys.readouterr().out
    assert (
        "1, 2, 4" in said
        and "batch_size=2: the next larger size failed (the operating system" in said
    )


def test_the_reason_is_told(monkeypatch, splits, capsys):
    child(monkeypatch, 1, 2, 4)
    assert choose(splits) == 4
    assert (
        "batch_size=4: this is the largest size that is tried"
        in capsys.readouterr().out
    )
    child(monkeypatch, 1, end="sys.exit('it would need 3 GB')")
    assert choose(splits) == 1
    assert "the trial ended: it would need 3 GB" in capsys.readouterr().out


def test_no_size_at_all_is_an_error_with_the_cause(monkeypatch, splits):
    child(monkeypatch, code="raise SystemExit('no such thing')")
    with pytest.raises(RuntimeError, match="the trial ended: no such thing"):
        choose(splits)
    child(monkeypatch, end="time.sleep(60)")
    monkeypatch.setattr(batch_size, "_PATIENCE", 0.5)
    with pytest.raises(RuntimeError, match="it took more than"):
        choose(splits)


def task(tmp_path, splits, sizes, **fields):
    """A task of `choose_batch_size`, as a file, and its output."""
    run = ek.RunConfiguration(**tiny_run(**{"batch_size": "auto", **fields}))
    out = tmp_path / "out.txt"
    content = {
        "configuration": batch_size._for_trial(run, splits.train).to_dict(),
        "class_names": list(splits.train.class_names),
        "boxes": 3,
        "seg_class_names": splits.train.seg_class_names,
        "sizes": sizes,
        "out": str(out),
    }
    (tmp_path / "task.json").write_text(json.dumps(content))
    return tmp_path / "task.json", out


def test_the_trial_trains_each_size(tmp_path, splits, monkeypatch):
    path, out = task(tmp_path, splits, [1, 2])
    sizes = []

    def fit(model, batches, **_):
        images, truth = next(iter(batches))
        sizes.append((images.shape, len(batches), truth["boxes"].shape[1]))
        return types.SimpleNamespace(history={"loss": [1.0]})

    monkeypatch.setattr(ek.EfficientDet, "fit", fit)
    batch_size.main(str(path))
    assert out.read_text() == "1\n2\n"
    # Four images of three boxes may come together in a mosaic.
    assert sizes == [((size, 64, 64, 3), 2, 12) for size in (1, 2)]


def test_the_trial_has_masks_for_a_segmentation_head(splits):
    heads = ["object_detection", "segmentation"]
    model_config = {**MODEL_CONFIG, "heads": heads, "seg_num_classes": 3}
    run = ek.RunConfiguration(**tiny_run(batch_size=1, model_config=model_config))
    names = ["circle", "square", "triangle"], ["sky", "sea", "sand"]
    trial = batch_size._for_trial(run, splits.train)
    dataset = batch_size.made_up(trial, *names, boxes=2)
    _, truth = next(iter(training_batches(make_model(trial, dataset), trial, dataset)))
    assert truth["masks"].shape == (1, 64, 64)
    assert set(np.unique(truth["masks"])) <= {0, 255}  # 255 is outside of the image


def test_the_trial_of_new_classes_trains_all_at_the_size_of_the_detector(
    splits, tmp_path
):
    write_archive(tiny_model(), path := tmp_path / "old.keras")
    fields = {"freeze": "all-but-new-classes", "weights": str(path), "image_size": None}
    run = ek.RunConfiguration(**tiny_run(batch_size=1, **fields))
    trial = batch_size._for_trial(run, splits.train)
    assert (trial.freeze, trial.weights, trial.image_size) == (None, None, (64, 64))
    model = make_model(trial, splits.train)
    assert all(layer.trainable for layer in model.layers)


def test_the_trial_stops_before_memory_is_full(tmp_path, splits, monkeypatch):
    path, out = task(tmp_path, splits, [1, 2, 4])
    monkeypatch.setattr(batch_size, "train", lambda *_: None)
    peaks = iter([1e9, 2e9, 3e9])  # a gigabyte for each image: 4 of 4.5 are too many
    monkeypatch.setattr(batch_size, "peak_bytes", lambda: int(next(peaks)))
    monkeypatch.setattr(batch_size, "available_bytes", lambda: int(4.5e9))
    with pytest.raises(SystemExit, match="about 4.0 GB, and 4.5 GB are free"):
        batch_size.main(str(path))
    assert out.read_text() == "1\n2\n"


SECOND = "30 20 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
FIRST = (
    "30 20 0:26 {root} /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
)
CPU = "31 20 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Files of the kernel, with 1,000,000 kB of free memory."""
    monkeypatch.setattr(batch_size, "_ROOT", tmp_path)

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")

    write({"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:  1000000 kB"})
    return write


def group(path, limit, taken, stat="", version=2):
    names = ("max", "current") if version == 2 else ("limit_in_bytes", "usage_in_bytes")
    top = "sys/fs/cgroup" + ("" if version == 2 else "/memory") + path
    texts = dict(zip(names, (limit, taken)))
    return {f"{top}/memory.{n}": text for n, text in {**texts, "stat": stat}.items()}


OF_MACHINE = 1_024_000_000
FILES_OF_2 = "anon 1\ninactive_file 300"
FILES_OF_1 = "inactive_file 1\ntotal_inactive_file 300"


@pytest.mark.parametrize(
    ("mounts", "own", "groups", "free"),
    [
        # Without control groups, and without limits.
        ("", "", [], OF_MACHINE),
        (SECOND, "0::/", [group("", "max", 9000)], OF_MACHINE),
        (SECOND, "0::/a", [group("/a", 10**13, 9000)], OF_MACHINE),
        # Version 2: files that were read are let go.
        (SECOND, "0::/", [group("", 5000, 1000)], 4000),
        (SECOND, "0::/", [group("", 5000, 1000, FILES_OF_2)], 4300),
        (SECOND, "0::/", [group("", 5000, 6000)], 0),
        # The limit of each group around it counts.
        (
            SECOND,
            "0::/pod/job",
            [group("/pod", 5000, 4500), group("/pod/job", 4000, 100)],
            500,
        ),
        (SECOND, "0::/pod/job", [group("/pod/job", "max", 1), group("/pod", 9, 2)], 7),
        (
            SECOND,
            "0::/a",
            [group("/a", 9000, 0), {"sys/fs/cgroup/a/memory.high": 8000}],
            8000,
        ),
        # Version 1, in whose place a container sees its own group alone, or all.
        (
            CPU + FIRST.format(root="/"),
            "5:cpu,cpuacct:/\n4:memory:/docker/3a7c\n0::/",
            [
                group("", 2**63 - 4096, 1, version=1),
                group("/docker/3a7c", 5000, 1000, FILES_OF_1, version=1),
            ],
            4300,
        ),
        (
            FIRST.format(root="/docker/3a7c"),
            "4:memory:/docker/3a7c",
            [group("", 5000, 1000, version=1)],
            4000,
        ),
        (
            FIRST.format(root="/"),
            "4:memory:/",
            [group("", 2**63 - 4096, 1, version=1)],
            OF_MACHINE,
        ),
        # Both, as on older systems: memory is of version 1 there.
        (
            SECOND.replace("cgroup rw", "cgroup/unified rw") + FIRST.format(root="/"),
            "4:memory:/a\n0::/",
            [group("/a", 5000, 2000, version=1)],
            3000,
        ),
    ],
    ids=[
        "no groups",
        "max",
        "more than there is",
        "limit",
        "files",
        "nothing left",
        "nested",
        "the outer one",
        "high",
        "version 1",
        "version 1 in a container",
        "version 1 without a limit",
        "both versions",
    ],
)
def test_free_memory_is_that_of_the_machine_or_of_a_container(
    system, mounts, own, groups, free
):
    system({"proc/self/mountinfo": mounts, "proc/self/cgroup": own})
    for files in groups:
        system(files)
    assert batch_size.available_bytes() == free


def test_where_nothing_is_known_no_size_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(batch_size, "_ROOT", tmp_path / "none")
    assert batch_size.available_bytes() is None and batch_size.peak_bytes() == 0


def test_this_process_has_memory():
    if not pathlib.Path("/proc/self/status").exists():
        pytest.skip("of Linux alone")
    held = np.ones(50_000_000, "uint8")
    assert batch_size.peak_bytes() > held.nbytes
    assert 0 <= batch_size.available_bytes() < 2**50


def test_a_run_takes_the_size(monkeypatch, shapes, tmp_path):
    monkeypatch.setattr(batch_size, "choose_batch_size", lambda *_: 2)
    made = []

    def make_model(configuration, dataset):
        made.append((configuration.batch_size, len(dataset)))
        raise KeyboardInterrupt  # enough is known

    monkeypatch.setattr("effdet_keras.runs.fine_tune.make_model", make_model)
    fields = tiny_run(batch_size="auto", one_batch=True)
    with pytest.raises(KeyboardInterrupt):
        ek.fine_tune(shapes, out=tmp_path / "run", **fields)
    assert made == [(2, 2)]


@pytest.mark.parametrize(
    ("hparams", "fields", "rate"),
    [
        ("optimizer=adam,learning_rate=0.032", {}, 0.004),  # of 8 images of 64
        ("optimizer=adam,learning_rate=0.032", {"learning_rate": 0.5}, 0.5),
        ("learning_rate=0.032", {}, 0.032),  # which `fit` scales
        ("gamma=2.0", {}, None),
    ],
)
def test_rates_of_automl_are_scaled_to_the_size(monkeypatch, hparams, fields, rate):
    monkeypatch.setattr(batch_size, "choose_batch_size", lambda *_: 8)
    fields = {"batch_size": "auto", **fields}
    chosen = build_configuration(None, hparams, fields)
    assert chosen.batch_size == "auto"
    sized = with_batch_size(chosen, None, hparams, fields)
    assert (sized.batch_size, sized.learning_rate) == (8, rate)
    assert sized == build_configuration(None, hparams, {**fields, "batch_size": 8})
