"""In which folder the images of a COCO json or csv file are, if several have them."""

import json

import pytest
from PIL import Image

from effdet_keras.data import from_coco, from_csv, load, load_splits
from effdet_keras.data.formats import image_paths

ROW = "filename,width,height,class,xmin,ymin,xmax,ymax\n0001.jpg,40,20,cat,1,2,5,6\n"


def put(folder, *names):
    """Writes images of 40 x 20 pixels, each of another color."""
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 20), (number, 0, 0)).save(path)


def annotate(path, height=20):
    """Writes a json or csv file of one image, `0001.jpg`, with one box."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = {"id": 1, "file_name": "0001.jpg", "width": 40, "height": height}
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 4, 4]}
    content = {"images": [image], "annotations": [box]}
    content["categories"] = [{"id": 1, "name": "cat"}]
    path.write_text(json.dumps(content) if path.suffix == ".json" else ROW)


def place(dataset, folder):
    """The path of the one image of a dataset, below a folder."""
    (record,) = dataset.records
    return record.image.removeprefix(f"{folder}/")


@pytest.mark.parametrize("kind", ["json", "csv"])
@pytest.mark.parametrize(
    "train, val",
    [
        ("images", "val_images"),
        ("train_images", "val_images"),
        ("training", "images/val"),
        ("pictures", "Validation Set"),
    ],
)
def test_images_of_one_name_are_those_of_the_split(tmp_path, kind, train, val):
    put(tmp_path, f"{train}/0001.jpg", f"{val}/0001.jpg", "val_masks/0001.jpg")
    for split in ("train", "val"):
        annotate(tmp_path / f"annotations/{split}.{kind}")
    splits = load_splits(tmp_path)
    assert place(splits["train"], tmp_path) == f"{train}/0001.jpg"
    assert place(splits["val"], tmp_path) == f"{val}/0001.jpg"


@pytest.mark.parametrize("folder", ["test_{}", "photos {}", "test_{}_images"])
def test_of_folders_of_one_split_that_with_the_words_of_the_json_is_taken(
    tmp_path, folder
):
    for name in ("cam1", "cam2"):
        annotate(tmp_path / f"data/annotations-test_{name}.json")
    put(tmp_path / "data", *(f"{folder.format(n)}/0001.jpg" for n in ("cam1", "cam2")))
    splits = load_splits(tmp_path / "data")
    for name in ("cam1", "cam2"):
        dataset = splits[f"annotations-test_{name}"]
        wanted = f"data/{folder.format(name)}/0001.jpg"
        assert place(dataset, tmp_path) == wanted


@pytest.mark.parametrize("folders", [("test_b", "test_a"), ("day", "night")])
def test_of_folders_with_equal_names_the_sizes_of_images_tell(tmp_path, folders):
    put(tmp_path, *(f"{folder}/0001.jpg" for folder in folders))
    annotate(tmp_path / "test.json", height=30)
    file = tmp_path / folders[1] / "0001.jpg"
    Image.new("RGB", (40, 30), (9, 0, 0)).save(file)
    assert (
        place(from_coco(tmp_path / "test.json"), tmp_path) == f"{folders[1]}/0001.jpg"
    )
    Image.new("RGB", (40, 30)).save(tmp_path / folders[0] / "0001.jpg")
    several = f"2 folders: .*{folders[0]}.*Pass `image_dir`, or name the json file"
    with pytest.raises(ValueError, match=several):
        from_coco(tmp_path / "test.json")
    file.write_bytes((tmp_path / folders[0] / "0001.jpg").read_bytes())
    assert len(from_coco(tmp_path / "test.json")) == 1  # copies are one image


def test_a_folder_of_a_split_comes_before_those_with_more_words(tmp_path):
    put(tmp_path, "val images/0001.jpg", "val_blurred_images/0001.jpg")
    annotate(tmp_path / "instances_val.json")
    dataset = from_coco(tmp_path / "instances_val.json")
    assert place(dataset, tmp_path) == "val images/0001.jpg"


def test_a_folder_of_another_split_is_never_that_of_the_images(tmp_path):
    put(tmp_path, "pets_train/0001.jpg", "pets_val/0001.jpg")
    for split in ("train", "val", "test"):
        annotate(tmp_path / f"annotations/{split}.json")
    for split in ("train", "val"):
        dataset = load(tmp_path, split)
        assert place(dataset, tmp_path) == f"pets_{split}/0001.jpg"
    with pytest.raises(FileNotFoundError, match="no folder with the images"):
        load(tmp_path, "test")


@pytest.mark.parametrize("kind, read", [("json", from_coco), ("csv", from_csv)])
def test_images_of_the_dataset_come_before_those_beside_it(tmp_path, kind, read):
    put(tmp_path, "images/0001.jpg", "cats/photos/of/May/0001.jpg")
    annotate(tmp_path / f"cats/train.{kind}")
    wanted = "cats/photos/of/May/0001.jpg"
    with pytest.warns(UserWarning, match="Found below"):
        assert place(load(tmp_path / "cats"), tmp_path) == wanted
    (tmp_path / wanted).unlink()
    said = r"read from '.*/images', beside that folder.*pass `image_dir`"
    with pytest.warns(UserWarning, match=said):
        assert place(load(tmp_path / "cats"), tmp_path) == "images/0001.jpg"
    with pytest.warns(UserWarning, match=said):
        dataset = read(tmp_path / f"cats/train.{kind}")
    assert place(dataset, tmp_path) == "images/0001.jpg"


def test_of_many_images_of_one_name_those_in_other_folders_are_not_looked_at(
    tmp_path, monkeypatch
):
    count, compared = 50, []
    compare = image_paths._common_ending
    monkeypatch.setattr(
        image_paths,
        "_common_ending",
        lambda *a, **k: compared.append(1) or compare(*a, **k),
    )
    put(tmp_path, *(f"deep/train/Clip{i}/0001.jpg" for i in range(count)))
    put(tmp_path, "deep/val/Clip0/0001.jpg")  # never one of the split
    names = [(rf"C:\me\clip{i}\0001.jpg",) for i in range(count)]
    with image_paths.dataset_root(tmp_path):
        found, _ = image_paths.find_moved(names, tmp_path / "train.json")
    wanted = [tmp_path / f"deep/train/Clip{i}/0001.jpg" for i in range(count)]
    assert found == wanted and len(compared) <= 3 * count
