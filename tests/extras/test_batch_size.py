"""`batch_size="auto"`: measured in a child process, which may be killed."""

import json
import signal
import sys
import types

import pytest
from support.tiny_run import tiny_run

import effdet_keras as ek
from effdet_keras.extras import batch_size
from effdet_keras.extras.batch_size import with_batch_size
from effdet_keras.runs.parts import choose_splits
from effdet_keras.runs.requested import configured

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
    assert "1, 2, 4" in said and "batch_size=2: with the next size the system" in said


def test_the_reason_is_told(monkeypatch, splits, capsys):
    child(monkeypatch, 1, 2, 4)
    assert choose(splits) == 4
    assert "batch_size=4: the largest that is tried" in capsys.readouterr().out
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


def test_the_trial_stops_before_memory_is_full(tmp_path, splits, monkeypatch):
    path, out = task(tmp_path, splits, [1, 2, 4])
    monkeypatch.setattr(batch_size, "train", lambda *_: None)
    peaks = iter([1e9, 2e9, 3e9])  # a gigabyte for each image: 4 of 4.5 are too many
    monkeypatch.setattr(batch_size, "peak_bytes", lambda: int(next(peaks)))
    monkeypatch.setattr(batch_size, "available_bytes", lambda: int(4.5e9))
    with pytest.raises(SystemExit, match="about 4.0 GB of 4.5 GB that are free"):
        batch_size.main(str(path))
    assert out.read_text() == "1\n2\n"


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
    chosen = configured(None, hparams, fields)
    assert chosen.batch_size == "auto"
    sized = with_batch_size(chosen, None, hparams, fields)
    assert (sized.batch_size, sized.learning_rate) == (8, rate)
    assert sized == configured(None, hparams, {**fields, "batch_size": 8})
