"""What a run trains with: splits of its data, its model, with both heads, too."""

import json

import numpy as np
import pytest
from PIL import Image
from support.clips import write_clip
from support.tiny import BOTH_HEADS, tiny_model
from support.tiny_run import MODEL_CONFIG, tiny_run

import effdet_keras as ek
from effdet_keras.data import from_arrays
from effdet_keras.extras import multiprocess
from effdet_keras.runs import components
from effdet_keras.runs.components import check_monitor, choose_splits
from effdet_keras.runs.configuration import RunConfiguration

pytestmark = pytest.mark.tensorflow


def dataset(count, boxes=1):
    image = np.zeros((16, 16, 3), "uint8")
    rows = [[[0, 0, 8, 8]] * boxes] * count
    return from_arrays([image] * count, rows, [[0] * boxes] * count, ["cat"])


def chosen(datasets, **fields):
    return choose_splits(RunConfiguration(**fields), datasets)


def sizes(splits):
    return {role: len(dataset) for role, dataset in splits.by_role().items()}


def test_a_monitor_that_no_epoch_has_is_told_before_anything_is_trained(tmp_path):
    data, out = {"train": dataset(2), "val": dataset(2)}, tmp_path / "run"
    with pytest.raises(ValueError, match="Did you mean 'AP'.*'AP/cat'.*: 'APP'"):
        ek.fine_tune(data, out=out, monitor="APP")
    assert not out.exists()
    names = ("AP", "ARmax100", "AP/cat", "loss", "val_box_loss", "mIoU", "IoU/sky")
    for monitor in names:
        run = RunConfiguration(monitor=monitor, validation_losses=True)
        check_monitor(run, ["cat"])
    with pytest.raises(ValueError, match="must be the name of a number"):
        check_monitor(RunConfiguration(monitor="AP/floss"), ["cat"])


@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_the_usual_names_are_found(name):
    data = {"train": dataset(5), name: dataset(3)}
    splits = chosen({**data, "test": dataset(2)})
    assert sizes(splits) == {"train": 5, "validation": 3, "test": 2}
    assert splits.final == ("test", splits.test)
    splits = chosen(data)
    assert splits.final == ("validation", splits.validation)


def test_vocs_trainval_is_trained_on_where_there_is_no_train():
    splits = chosen({"trainval": dataset(6), "test": dataset(2)})
    assert sizes(splits) == {"train": 5, "validation": 1, "test": 2}
    splits = chosen({"trainval": dataset(6), "train": dataset(4), "val": dataset(2)})
    assert sizes(splits) == {"train": 4, "validation": 2}


def test_splits_can_be_named():
    data = {"a": dataset(5), "b": dataset(3), "c": dataset(2), "test": dataset(1)}
    fields = {"train_split": "a", "validation_split": "b", "test_split": "c"}
    splits = chosen(data, **fields)
    assert sizes(splits) == {"train": 5, "validation": 3, "test": 2}
    assert splits.test_name == "c"
    assert chosen(data, **{**fields, "test_split": None}).test is None


def test_a_part_of_the_training_images_is_kept_for_validation(capsys):
    splits = chosen({"train": dataset(10)}, validation_fraction=0.3, seed=1)
    assert sizes(splits) == {"train": 7, "validation": 3}
    assert not set(splits.train.image_ids) & set(splits.validation.image_ids)
    assert "3 images of 'train', chosen at random" in capsys.readouterr().out
    again = chosen({"train": dataset(10)}, validation_fraction=0.3, seed=1)
    assert again.validation.image_ids == splits.validation.image_ids
    # Data of one split is trained on, whatever its name.
    assert sizes(chosen({"default": dataset(10)})) == {"train": 8, "validation": 2}


def test_clips_stay_on_one_side_of_the_validation_split(tmp_path, capsys):
    for k in range(2):
        write_clip(tmp_path, f"clip{k}", seed=k, num_frames=15)
    (tmp_path / "classes.txt").write_text("cat\n")

    def clips_on_both_sides(**fields):
        splits = choose_splits(RunConfiguration(data=str(tmp_path), **fields))
        parts = splits.train.records, splits.validation.records
        names = [{record.file_name.split("_")[0] for record in part} for part in parts]
        return names[0] & names[1]

    assert not clips_on_both_sides()
    assert "2 groups of images that look alike (30 images)" in capsys.readouterr().out
    assert not clips_on_both_sides(split_by="name")
    assert clips_on_both_sides(split_by="image") == {"clip0", "clip1"}
    with pytest.raises(ValueError, match="`groups` must make two groups or more"):
        clips_on_both_sides(split_by="folder")


def test_a_way_to_divide_that_is_not_used_is_told(capsys):
    data = {"train": dataset(5), "valid": dataset(3)}
    chosen(data)
    assert capsys.readouterr().out == ""
    assert sizes(chosen(data, split_by="name")) == {"train": 5, "validation": 3}
    assert "`split_by` (name) is not used: the data has" in capsys.readouterr().out


def test_splits_that_are_not_there_are_told():
    data = {"fold1": dataset(5), "fold2": dataset(3)}
    with pytest.raises(ValueError, match="name the one to train on with `train_split`"):
        chosen(data)
    with pytest.raises(ValueError, match="'fold1', 'fold2', None.*'dev'"):
        chosen(data, train_split="fold1", validation_split="dev")


def test_splits_are_known_by_what_their_names_mention():
    data = {"val2017": dataset(3), "test-set": dataset(2), "train2017": dataset(5)}
    assert sizes(chosen(data)) == {"train": 5, "validation": 3, "test": 2}


def write_lists(folder, **names):
    """A YOLO dataset whose splits are lists of images, which may share some."""
    for name in {name for one in names.values() for name in one.split()}:
        (folder / "images").mkdir(parents=True, exist_ok=True)
        (folder / "labels").mkdir(exist_ok=True)
        Image.new("RGB", (16, 16)).save(folder / f"images/{name}.png")
        (folder / f"labels/{name}.txt").write_text("0 0.5 0.5 0.5 0.5")
    for split, one in names.items():
        lines = (f"images/{name}.png\n" for name in one.split())
        (folder / f"{split}.txt").write_text("".join(lines))
    places = "".join(f"{split}: {split}.txt\n" for split in names)
    (folder / "data.yaml").write_text(f"{places}names: [cat]\n")


def test_images_of_the_validation_split_are_not_trained_on(tmp_path, capsys):
    write_lists(tmp_path, train="a b c d", val="c d e")
    with pytest.warns(
        UserWarning, match="2 of the 3 images of 'val' are also in 'train'"
    ):
        splits = choose_splits(RunConfiguration(data=str(tmp_path)))
    assert sizes(splits) == {"train": 2, "validation": 3}
    assert [record.name for record in splits.train.records] == ["a.png", "b.png"]
    said = capsys.readouterr().out
    assert "2 images of 'train' are also in 'val' and left out" in said
    assert "is not used" not in said


def test_a_split_that_has_no_use_is_named(tmp_path, capsys):
    counts = {"train": 2, "val": 1, "test": 1, "other": 3}
    images = np.random.default_rng(0).integers(0, 255, (7, 16, 16, 3), np.uint8)
    whole = from_arrays(images, [[[0, 0, 8, 8]]] * 7, [[0]] * 7, ["cat"])
    ends = np.cumsum(list(counts.values()))
    data = {
        split: whole.subset(range(end - count, end))
        for (split, count), end in zip(counts.items(), ends)
    }
    ek.data.write_csv(data, tmp_path / "data")
    splits = choose_splits(RunConfiguration(data=str(tmp_path / "data")))
    assert sizes(splits) == {"train": 2, "validation": 1, "test": 1}
    said = capsys.readouterr().out
    assert "The split 'other' is not used: 3 images." in said
    assert said.count("is not used") == 1


def test_of_train_and_val_that_are_one_folder_a_part_is_kept(tmp_path, capsys):
    write_lists(tmp_path, train="a b c d e")
    (tmp_path / "data.yaml").write_text("train: images\nval: images\nnames: [cat]")
    with pytest.warns(UserWarning, match="'train' and 'val' contain the same 5 images"):
        splits = choose_splits(RunConfiguration(data=str(tmp_path)))
    assert sizes(splits) == {"train": 4, "validation": 1}
    said = capsys.readouterr().out
    assert "'val' is not used, because all images of 'train' are in it" in said
    assert "There is no validation split: 1 image of 'train'" in said
    assert said.count("is not used") == 1


def test_datasets_in_memory_are_taken_as_they_are():
    one = dataset(4)
    assert sizes(chosen({"train": one, "val": one})) == {"train": 4, "validation": 4}


def test_crowds_are_objects_of_the_training_images_alone():
    image = np.zeros((16, 16, 3), "uint8")
    rows = [[[0, 0, 8, 8]]] * 4, [[0]] * 4
    crowds = from_arrays([image] * 4, *rows, ["cat"], is_crowd=[[True]] * 4)
    for validation in ({}, {"val": crowds}):
        data = {"train": crowds, **validation}
        splits = chosen(data, train_on_crowds=True)
        assert not any(record.is_crowd.any() for record in splits.train.records)
        assert all(record.is_crowd.all() for record in splits.validation.records)
        with pytest.raises(ValueError, match="all . boxes are crowds.*train_on_crowds"):
            chosen(data)


def test_a_split_without_a_box_to_learn_from_is_an_error(capsys):
    with pytest.raises(ValueError, match="the split 'train' of 4 images: none of them"):
        chosen({"train": dataset(4, boxes=0), "val": dataset(2)})
    chosen({"train": dataset(4), "val": dataset(2, boxes=0)})
    assert "The validation split has no boxes besides" in capsys.readouterr().out


def test_one_batch_has_images_with_objects():
    image, box = np.zeros((16, 16, 3), "uint8"), [0, 0, 8, 8]
    rows = [[], [], [box], [], [box]], [[], [], [0], [], [0]]
    data = from_arrays([image] * 5, *rows, ["cat"])
    few = chosen({"train": data, "val": data}).one_batch(3)
    assert few.train.image_ids == (1, 3, 5)


# --- The model of a run: for its data, with the weights that can be had.


@pytest.fixture(scope="module")
def train():
    image = np.zeros((64, 64, 3), "uint8")
    boxes = [[[0, 0, 30, 10], [8, 8, 60, 20]]] * 2
    return from_arrays([image] * 2, boxes, [[0, 1]] * 2, {3: "cat", 7: "dog"})


def made(train, **fields):
    return components.make_model(RunConfiguration(**tiny_run(**fields)), train)


def test_it_has_the_classes_of_the_data_and_what_was_set(train):
    fields = {"postprocess": {"max_detections": 7}, "loss": {"gamma": 2.0}}
    model = made(train, **fields, learning_rate=0.5, freeze="efficientnet")
    assert (model.class_names, model.category_ids) == (("cat", "dog"), (3, 7))
    assert model.config.image_size == (64, 64)
    assert model.postprocess.max_detections == 7
    recipe = model.settings.requested_recipe
    assert (recipe.loss.gamma, recipe.learning_rate) == (2.0, 0.5)
    assert not any("efficientnet" in w.path for w in model.trainable_variables)


def test_a_loaded_detector_chooses_boxes_as_before(train, tmp_path):
    model = made(train)
    model.postprocess = ek.Postprocess(method="hard", iou_threshold=0.6)
    path = tmp_path / "hard.keras"
    model.save(path)

    def chosen(**fields):
        fields = {"weights": str(path), "verbose": 0, "postprocess": fields}
        return made(train, **fields).postprocess

    assert chosen() == model.postprocess
    changed = chosen(iou_threshold=0.4)
    assert (changed.method, changed.iou_threshold) == ("hard", 0.4)


@pytest.fixture
def asked(monkeypatch):
    """What `from_preset` is asked for; it has no backbone."""
    asked = []

    def from_preset(name, weights=None, **options):
        if weights is not None:
            raise ConnectionError("no network here")
        asked.append(options)
        return tiny_model()

    monkeypatch.setattr(components.EfficientDet, "from_preset", from_preset)
    return asked


def test_without_a_backbone_it_says_so_and_starts_from_random_weights(
    train, asked, capsys
):
    made(train, weights="auto")
    said = capsys.readouterr().out
    assert "starts from random weights" in said and "no network here" in said
    with pytest.raises(ConnectionError):  # it was asked for
        made(train, weights="imagenet")


def test_a_strategy_holds_model_and_optimizer(train, monkeypatch):
    monkeypatch.setattr(multiprocess, "_started", {})
    model = made(train, distribute="mirrored")
    assert model.config.sync_batch_norm
    assert type(model.distribute_strategy).__name__ == "MirroredStrategy"


# --- A run of a model with both heads: masks of the data, numbers, report.

HEADS = {**MODEL_CONFIG, "heads": list(BOTH_HEADS)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    ek.data.write_shapes(folder, num_train=8, num_valid=4, image_size=64)
    return folder


def test_masks_are_read_where_the_model_has_the_head(folder):
    splits = choose_splits(RunConfiguration(data=str(folder), model_config=HEADS))
    names = ("background", "circle", "square", "triangle")
    assert splits.train.seg_class_names == splits.validation.seg_class_names == names
    plain = choose_splits(RunConfiguration(data=str(folder)))
    assert plain.train.seg_class_names is None


def test_a_run_of_segmentation_alone_is_refused():
    with pytest.raises(ValueError, match="A run is evaluated by its boxes"):
        RunConfiguration(model_config={"heads": ["segmentation"]})


@pytest.mark.slow
def test_a_run_has_mean_iou_in_its_numbers_and_report(folder, tmp_path):
    fields = {**tiny_run(epochs=1), "model_config": HEADS}
    tuned = ek.fine_tune(str(folder), out=tmp_path / "run", **fields)
    numbers = json.loads((tmp_path / "run" / "numbers.json").read_text())
    assert 0 <= numbers["mIoU"] <= 1 and "AP" in numbers
    assert tuned.model.config.seg_num_classes == 4
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Classes of pixels" in page and "triangle" in page
    assert page.count("Mask of") >= 4
