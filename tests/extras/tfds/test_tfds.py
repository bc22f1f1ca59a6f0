"""`from_tfds`: TFDS's own files, examples, damage."""

import shutil
import types

import numpy as np
import pytest

pytest.importorskip("tensorflow")

import tensorflow as tf

from effdet_keras.extras.tfds import from_tfds, tfds_readers

pytestmark = pytest.mark.tensorflow


# Folders.


@pytest.mark.smoke
def test_a_folder_that_tfds_wrote(golden_path):
    folder = golden_path("tfds_shapes")
    dataset = from_tfds(folder, "train")
    assert dataset.class_names == ("cat", "dög") and dataset.category_ids == (1, 2)
    assert dataset.image_ids == (5, 6, 7)
    assert [r.file_name for r in dataset.records] == ["0.jpg", "1.jpg", "2.jpg"]
    empty, one, two = dataset.records
    assert len(empty.labels) == 0 and one.labels.tolist() == [0]
    assert two.labels.tolist() == [0, 1] and two.is_crowd.tolist() == [False, True]
    assert two.area.tolist() == [5, 5] and two.annotation_ids.tolist() == [20, 21]
    np.testing.assert_allclose(two.boxes_xywh, [[8, 3, 16, 12]] * 2, atol=1e-5)
    assert dataset[2]["image"].shape == (30, 40, 3)
    assert np.abs(dataset[2]["image"].astype(int) - 2).max() <= 1
    assert from_tfds(folder, "validation").image_ids == (5,)


def test_splits_and_places(golden_path, tmp_path):
    folder = tmp_path / "shapes" / "1.0.0"
    shutil.copytree(golden_path("tfds_shapes"), folder)
    for place in (folder, folder.parent, tmp_path):
        assert list(tfds_readers(place)) == ["train", "validation"]
        assert len(from_tfds(place, "train")) == 3
    builder = types.SimpleNamespace(data_dir=str(folder))
    assert len(from_tfds(builder, "train")) == 3
    with pytest.raises(ValueError, match=r"\['train', 'validation'\].*split=None"):
        from_tfds(folder)
    shutil.copytree(folder, tmp_path / "shapes" / "2.0.0")
    with pytest.raises(ValueError, match="must contain only one TFDS dataset"):
        from_tfds(tmp_path, "train")
    with pytest.raises(FileNotFoundError, match="download_and_prepare"):
        from_tfds(tmp_path / "none")
    for path in folder.glob("*tfrecord*"):
        path.rename(path.with_name(path.name.replace("tfrecord", "array_record")))
    with pytest.raises(ValueError, match="NAME-train.tfrecord-00000-of-00001"):
        from_tfds(folder, "train")


def test_a_missing_file_is_told(golden_path, tmp_path):
    folder = shutil.copytree(golden_path("tfds_shapes"), tmp_path / "copy")
    (file,) = folder.glob("*train*")
    for number in (0, 2):
        name = file.name.replace("00000-of-00001", f"0000{number}-of-00003")
        shutil.copy(file, folder / name)
    file.unlink()
    with pytest.raises(FileNotFoundError, match="2 of the 3 files.*-of-00003"):
        from_tfds(folder, "train")
    assert len(from_tfds(folder, "validation")) == 1


# Examples.


def example_of(**changes):
    objects = {"bbox": [[0.1, 0.25, 0.3, 0.5]], "label": [1]}
    objects.update(changes.pop("objects", {}))
    return {"image": np.full((30, 40, 3), 7, np.uint8), "objects": objects, **changes}


def test_examples_of_a_tf_dataset():
    objects = {
        "bbox": tf.ragged.constant(
            [[[0.1, 0.25, 0.3, 0.5]], []], ragged_rank=1, inner_shape=(4,)
        ),
        "label": tf.ragged.constant([[1], []], dtype=tf.int64),
        "is_crowd": tf.ragged.constant([[True], []], dtype=tf.bool),
    }
    images = np.arange(2 * 30 * 40 * 3).reshape(2, 30, 40, 3).astype(np.uint8)
    source = tf.data.Dataset.from_tensor_slices(
        {"image": images, "image/filename": ["é.jpg", "b"], "objects": objects}
    )

    def dense(example):
        example["objects"] = {
            key: value.to_tensor() if isinstance(value, tf.RaggedTensor) else value
            for key, value in example["objects"].items()
        }
        return example

    dataset = from_tfds(source.map(dense), class_names=("cat", "dog"))
    np.testing.assert_allclose(dataset[0]["boxes"], [[3, 10, 9, 20]], 1e-6)
    assert dataset[0]["labels"].tolist() == [1] and dataset[0]["is_crowd"].all()
    assert [e["file_name"] for e in dataset] == ["é.jpg", "b"]
    assert len(dataset[1]["labels"]) == 0
    np.testing.assert_array_equal(dataset[1]["image"], images[1])
    with pytest.raises(ValueError, match="repeats forever"):
        from_tfds(source.repeat(), class_names=("cat", "dog"))


def test_examples_of_any_iterable():
    examples = [
        example_of(**{"image/id": 9, "objects": {"is_difficult": [True]}}),
        example_of(**{"image/id": 4, "objects": {"area": [2.5], "id": [77]}}),
    ]
    dataset = from_tfds(iter(examples), class_names=["cat", "dog"])
    assert dataset.image_ids == (9, 4)
    first, second = dataset.records
    assert first.is_crowd.tolist() == [True] and second.area.tolist() == [2.5]
    first, second = from_tfds(examples[1:] * 2, class_names=["cat", "dog"]).records
    assert (first.image_id, second.image_id) == (1, 2)  # one id twice
    assert first.annotation_ids.tolist() != second.annotation_ids.tolist()


def test_what_is_no_source():
    with pytest.raises(ValueError, match="must be a folder"):
        from_tfds(5)
    with pytest.raises(ValueError, match="pass `class_names=info"):
        from_tfds([example_of()])
    with pytest.raises(ValueError, match="split='train'"):
        from_tfds([example_of()], "train", class_names=["a"])
