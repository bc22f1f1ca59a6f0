"""Images that cannot be read in the middle of a run: skipped, counted, named."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from support.programs import run_alone

from effdet_keras.data import write_shapes
from effdet_keras.data.pipeline.image_reader import ImageReader, find_image_readers

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def damaged(tmp_path):
    """Ten images; those with the ids 3, 5 and 10 are cut, gone and empty."""
    dataset, _ = write_shapes(tmp_path, num_train=10, num_valid=1, image_size=32)
    paths = {i: tmp_path / "train" / f"{i:05d}.jpg" for i in (3, 5, 10)}
    paths[3].write_bytes(paths[3].read_bytes()[:400])
    paths[5].unlink()
    paths[10].write_bytes(b"")
    return dataset


@pytest.fixture
def three(tmp_path):
    return write_shapes(tmp_path, num_train=3, num_valid=1, image_size=32)[0]


def ids_and_scales(batches):
    truth = [truth for _, truth in batches]
    return (
        np.concatenate([t["image_id"] for t in truth]).tolist(),
        np.concatenate([t["image_scale"] for t in truth]),
    )


def test_in_training_the_next_image_takes_the_place(damaged, capsys):
    batches = damaged.batches(5, image_size=32, training=True, shuffle=False)
    ids, scales = ids_and_scales(batches)
    assert len(batches) == 2 and ids == [1, 2, 4, 4, 6, 6, 7, 8, 9, 1]
    assert (scales > 0).all()
    said = capsys.readouterr().err
    assert "3 of 10 images could not be read and were skipped" in said
    assert "00003.jpg, 00005.jpg, 00010.jpg" in said


def test_in_evaluation_it_counts_as_empty(damaged, capsys):
    batches = damaged.batches(4, image_size=32)
    ids, scales = ids_and_scales(batches)
    assert ids == list(range(1, 11))
    assert (np.flatnonzero(scales == 0) + 1).tolist() == [3, 5, 10]
    for _, truth in batches:
        unread = np.asarray(truth["image_scale"]) == 0
        assert (np.asarray(truth["labels"])[unread] == -1).all()
    assert "counted as empty" in capsys.readouterr().err


def test_each_pass_reports_once_and_a_clean_one_says_nothing(damaged, capsys):
    batches = damaged.batches(5, image_size=32, training=True)
    for _ in range(2):
        list(batches)
        assert capsys.readouterr().err.count("could not be read") == 1
    list(damaged.subset([0, 1, 3, 5]).batches(2, image_size=32))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("training", [True, False])
def test_no_image_at_all_is_an_error(three, tmp_path, training):
    for path in (tmp_path / "train").iterdir():
        path.write_bytes(b"GIF89a")
    batches = three.batches(1, image_size=32, training=training)
    with pytest.raises(tf.errors.OpError, match=r"None of the 3 images.*0000\d\.jpg"):
        list(batches)


def test_a_image_of_another_size_than_annotated_is_skipped(three, tmp_path, capsys):
    Image.new("RGB", (64, 64)).save(tmp_path / "train" / "00002.jpg")
    list(three.batches(3, image_size=32, training=True))
    said = capsys.readouterr().err
    assert "00002.jpg" in said and "(64, 64)" in said


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    dataset, _ = write_shapes(folder, num_train=4, num_valid=1, image_size=32)
    return dataset.batches(2, image_size=32)


def test_the_reader_of_batches_knows_their_classes_and_names(batches):
    reader = next(iter(find_image_readers(batches)))
    assert isinstance(reader, ImageReader)
    assert reader.class_names == ("circle", "square", "triangle")
    assert reader.name_of(3) == "00003.jpg"


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.map(lambda images, truth: (images + 1, truth)),
        lambda data: data.unbatch().batch(3),
        lambda data: tf.data.Dataset.zip((data, tf.data.Dataset.range(9))),
        lambda data: data.repeat().take(7).prefetch(2).map(lambda *batch: batch),
        lambda data: data.concatenate(data.take(1)),
    ],
)
def test_what_is_made_of_batches_keeps_the_reader(batches, change):
    assert len(find_image_readers(batches)) == 1
    assert list(find_image_readers(change(batches))) == list(
        find_image_readers(batches)
    )


def test_tensorflow_still_tells_what_a_dataset_was_made_of():
    # `_inputs` is a private name: `find_image_readers` finds nothing once it is gone.
    source = tf.data.Dataset.range(3)
    assert list(source.take(2)._inputs()) == [source]


PROGRAM = """
import dataclasses, sys, numpy, PIL.Image, effdet_keras as ek
pixels = numpy.random.default_rng(0).integers(0, 256, (2000, 2000, 3), dtype="uint8")
PIL.Image.fromarray(pixels).save(sys.argv[1], progressive=True)
dataset = ek.data.from_arrays([pixels], [[[0, 0, 9, 9]]], [[0]], ["cat"])
record = dataclasses.replace(dataset.records[0], image=sys.argv[1])
records = [dataclasses.replace(record, image_id=i) for i in range(40)]
batches = ek.data.DetectionDataset(records, ["cat"]).batches(4, image_size=32)
iterator = iter(batches)
next(iterator)
"""


def test_python_ends_while_threads_read_ahead(tmp_path):
    run_alone("-c", PROGRAM, tmp_path / "large.jpg")  # hung, as after an error in `fit`
