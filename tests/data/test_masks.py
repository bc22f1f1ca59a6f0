"""Masks: read from files and drawn of objects, and moved with the pixels."""

import dataclasses
import json
import warnings

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask
from support.small_datasets import features, write_shard

import effdet_keras as ek
from effdet_keras.data import DetectionDataset, from_arrays, from_coco, from_tfrecord
from effdet_keras.data.formats.writing import png_of
from effdet_keras.data.record import load_mask
from effdet_keras.letterbox import class_map_in_image, mask_in_input

NAMES = ("background", "cat", "dog")


def coco_file(folder, *annotations):
    """One image of 20 x 30 with annotations, as a json file and its folder."""
    Image.fromarray(np.zeros((20, 30, 3), "uint8")).save(folder / "a.png")
    common = {"image_id": 1, "iscrowd": 0}
    content = {
        "images": [{"id": 1, "file_name": "a.png", "height": 20, "width": 30}],
        "annotations": [{"id": i, **common, **a} for i, a in enumerate(annotations, 1)],
        "categories": [{"id": 3, "name": "cat"}, {"id": 7, "name": "dog"}],
    }
    (folder / "a.json").write_text(json.dumps(content))
    return folder / "a.json"


def box_pixels(x, y, w, h):
    pixels = np.zeros((20, 30), "uint8", order="F")
    pixels[y : y + h, x : x + w] = 1
    return pixels


def run_lengths(pixels, compressed=True):
    if compressed:
        runs = coco_mask.encode(np.asfortranarray(pixels))
        return {"size": runs["size"], "counts": runs["counts"].decode()}
    flat = pixels.ravel(order="F")
    ends = np.flatnonzero(np.diff(flat)) + 1
    counts = np.diff([0, *ends, flat.size]).tolist()
    return {"size": [20, 30], "counts": [0, *counts] if flat[0] else counts}


def object_of(category, box, segmentation=None):
    annotation = {"category_id": category, "bbox": box, "area": box[2] * box[3]}
    return annotation | ({} if segmentation is None else {"segmentation": segmentation})


def polygon(x, y, w, h):
    return [[x, y, x + w, y, x + w, y + h, x, y + h]]


def test_labels_that_eight_bits_cannot_hold_are_refused(tmp_path):
    path = coco_file(tmp_path, object_of(3, [2, 3, 4, 5], polygon(2, 3, 4, 5)))
    record = from_coco(path, masks=True).records[0]
    last = dataclasses.replace(record, labels=[253])
    assert sorted(np.unique(load_mask(last))) == [0, 254]
    for label in (254, 255):
        high = dataclasses.replace(record, labels=[label])
        with pytest.raises(ValueError, match=rf"a\.png', label={label}"):
            load_mask(high)


@pytest.mark.parametrize("kind", ["polygon", "compressed", "plain"])
def test_objects_of_coco_are_drawn_small_over_large(tmp_path, kind):
    def shape(*box):
        if kind == "polygon":
            return polygon(*box)
        return run_lengths(box_pixels(*box), compressed=kind == "compressed")

    small, large = (4, 5, 6, 7), (2, 3, 20, 12)
    file = coco_file(
        tmp_path,
        object_of(7, [*small], shape(*small)),
        object_of(3, [*large], shape(*large)),
    )
    dataset = from_coco(file, tmp_path, masks=True)
    expected = box_pixels(*large) * 1
    expected[5:12, 4:10] = 2
    assert dataset.seg_class_names == NAMES
    np.testing.assert_array_equal(dataset[0]["mask"], expected)
    assert dataset[0]["mask"].dtype == "uint8"
    assert "mask" not in from_coco(file, tmp_path)[0]
    # Classes that are filtered, or renumbered, are so in the mask.
    np.testing.assert_array_equal(
        dataset.filter(classes=["dog"])[0]["mask"], (expected == 2).astype(int)
    )
    others = dataset.with_classes(("cow", "dog", "cat"))
    assert others.seg_class_names == ("background", "cow", "dog", "cat")
    assert others[0]["mask"][4, 3] == 3 and others[0]["mask"][6, 5] == 2


def test_of_a_box_without_a_shape_the_pixels_have_no_class(tmp_path):
    shape = polygon(2, 3, 6, 6)
    file = coco_file(
        tmp_path, object_of(3, [2, 3, 6, 6], shape), object_of(7, [5, 4, 10, 10])
    )
    mask = from_coco(file, tmp_path, masks=True)[0]["mask"]
    assert mask[5, 6] == 1  # of the cat, in the box of the dog
    assert mask[10, 12] == 255
    assert mask[0, 0] == 0


def test_masks_of_objects_in_tfrecords_are_drawn(tmp_path):
    first, second = box_pixels(2, 3, 10, 10), box_pixels(4, 5, 3, 3)
    boxes = np.array([[3, 2, 13, 12], [5, 4, 8, 7]]) / [20, 30, 20, 30]
    others = {
        "object__class__text": ["cat", "dog"],
        "object__mask": [png_of(first), png_of(255 * second)],
    }
    image = png_of(np.zeros((20, 30, 3), "uint8"))
    path = write_shard(tmp_path, features(image, boxes, [1, 2], **others))
    dataset = from_tfrecord(path, masks=True)
    expected = first + second  # the dog, class 2, lies on the cat
    np.testing.assert_array_equal(dataset[0]["mask"], expected)
    assert dataset.seg_class_names == NAMES


def folder_of_masks(tmp_path, mask, mode=None):
    (tmp_path / "masks").mkdir()
    image = Image.fromarray(mask)
    if mode == "P":
        image.putpalette(list(range(256)) * 3)
    image.save(tmp_path / "masks" / "a.png")
    Image.fromarray(np.zeros((20, 30, 3), "uint8")).save(tmp_path / "a.jpg")
    return from_arrays([tmp_path / "a.jpg"], [[]], [[]], ["cat"])


@pytest.mark.parametrize("mode", ["L", "P"])
def test_masks_of_a_folder_go_with_images_by_name(tmp_path, mode):
    mask = np.arange(600).reshape(20, 30).astype("uint8") % 3
    dataset = folder_of_masks(tmp_path, mask, mode)
    dataset = dataset.with_masks(tmp_path / "masks", NAMES)
    np.testing.assert_array_equal(dataset[0]["mask"], mask)
    assert dataset.seg_class_names == NAMES
    assert dataset.subset([0]).seg_class_names == NAMES


def test_what_is_wrong_with_masks_of_a_folder_is_said(tmp_path):
    dataset = folder_of_masks(tmp_path, np.zeros((20, 29), "uint8"))
    masked = dataset.with_masks(tmp_path / "masks", NAMES)
    with pytest.raises(ValueError, match=r"\(20, 30\).*a\.png', shape=\(20, 29\)"):
        masked[0]
    with pytest.raises(FileNotFoundError, match="1 of 1 images have no mask.*a.tif"):
        dataset.with_masks(tmp_path / "masks", NAMES, suffix=".tif")
    Image.fromarray(np.zeros((20, 30, 3), "uint8")).save(tmp_path / "masks" / "a.png")
    with pytest.raises(ValueError, match="it has colors"):
        masked[0]


# Images in which the color says the class: 80 times it


def colored(size=(60, 90)):
    """An image, and its mask of large fields of four classes."""
    height, width = size
    rows, columns = np.mgrid[:height, :width]
    mask = (2 * (rows > height // 3) + (columns > width // 2)).astype("uint8")
    return np.repeat(80 * mask[..., None], 3, axis=-1), mask


def assert_color_says_class(image, mask, share=0.93):
    image, mask = np.asarray(image)[..., 0], np.asarray(mask)
    known = mask != 255
    assert known.mean() > 0.1
    np.testing.assert_array_less(
        share, (np.abs(image - 80.0 * mask) < 30)[known].mean()
    )
    return known


def colored_dataset():
    image, mask = colored()
    dataset = from_arrays([image] * 3, [[[5, 5, 50, 70]]] * 3, [[0]] * 3, ["cat"])
    records = [dataclasses.replace(r, mask=mask) for r in dataset.records]
    return DetectionDataset(records, ["cat"], seg_class_names=list("abcd"))


def colored_example(shift=0):
    image, mask = (np.roll(pixels, shift, axis=1) for pixels in colored())
    boxes, labels = np.float32([[5, 5, 50, 70]]), np.int32([0])
    return {"image": image, "boxes": boxes, "labels": labels, "mask": mask}


def assert_batch_says_class(size=1, **options):
    options = {"image_size": 64, "training": True, "seed": 2, **options}
    images, truth = next(iter(colored_dataset().batches(size, **options)))
    for image, mask in zip(images.numpy(), truth["masks"].numpy()):
        assert_color_says_class(image, mask, share=0.85)


def test_masks_are_flipped_scaled_and_cropped_with_their_images():
    dataset = colored_dataset()
    for scale in ((0.5, 0.6), (1.8, 2.0)):
        batches = dataset.batches(
            3,
            image_size=(64, 80),
            training=True,
            seed=1,
            scale_jitter=scale,
            pad_value=(255.0,) * 3,
        )
        images, truth = next(iter(batches))
        assert truth["masks"].shape == (3, 64, 80)
        for image, mask in zip(images.numpy(), truth["masks"].numpy()):
            known = assert_color_says_class(image, mask)
            assert (image[..., 0][~known] > 240).all()  # padding, and nothing else
            assert known.all() == (scale[0] > 1)


def test_masks_are_letterboxed_with_their_images_and_back():
    dataset = colored_dataset()
    images, truth = next(iter(dataset.batches(1, image_size=64)))
    found = truth["masks"].numpy()[0]
    assert_color_says_class(images.numpy()[0], found)
    mask = dataset[0]["mask"]
    # 60 x 90 become 42 x 64.
    np.testing.assert_array_equal(found[42:], 255)
    np.testing.assert_array_equal(found, mask_in_input(mask, (64, 64)))
    back = class_map_in_image(found, mask.shape)
    assert (back == mask).mean() > 0.97


@pytest.mark.parametrize(
    "augment",
    [
        ek.augment.Rotate(degrees=30.0),
        ek.augment.Shear(along_x=0.3, along_y=0.3),
        ek.augment.RandomCrop(area=(0.3, 0.5)),
        [ek.augment.RandomApply(ek.augment.Rotate(), 0.5), ek.augment.Blur()],
    ],
    ids=["rotate", "shear", "crop", "several"],
)
def test_masks_move_with_augmentations(augment):
    augmentation = ek.augment.Compose(
        augment if isinstance(augment, list) else [augment]
    )
    for number in range(3):
        result = augmentation(colored_example(), [1, number])
        assert result["mask"].shape == result["image"].shape[:2]
        assert_color_says_class(result["image"], result["mask"], share=0.9)
    assert augmentation.keeps_masks
    assert_batch_says_class(augment=augment)


def test_a_mosaic_has_the_masks_of_its_four_images():
    examples = [colored_example(shift) for shift in range(4)]
    for number in range(3):
        result = ek.augment.Mosaic()(examples, [1, number])
        assert result["mask"].shape == result["image"].shape[:2] == (60, 90)
        assert_color_says_class(result["image"], result["mask"], share=0.9)
    assert_batch_says_class(2, scale_jitter=(1, 1), augment=ek.augment.Mosaic())


@pytest.mark.parametrize(
    "augment, name",
    [
        ([ek.augment.Blur(), ek.augment.RandAugment()], "RandAugment"),
        (ek.augment.RandomApply(ek.augment.MixUp(), 0.5), "MixUp"),
        (lambda example, seed: example, "<lambda>"),
    ],
    ids=["rand_augment", "mix_up", "function"],
)
def test_augmentations_that_would_leave_masks_behind_are_refused(augment, name):
    dataset = colored_dataset()
    options = {"image_size": 64, "training": True, "augment": augment}
    with pytest.raises(ValueError, match=f"{name}.* may move, pixels but not masks"):
        dataset.batches(1, **options)
    dataset.batches(1, masks=False, **options)


def test_a_dataset_in_which_a_mask_is_missing_gives_no_masks():
    dataset = colored_dataset()
    first, *others = dataset.records
    records = [dataclasses.replace(first, mask=None), *others]
    dataset = DetectionDataset(records, ["cat"], seg_class_names=list("abcd"))
    with pytest.raises(ValueError, match="images_without=1.*image_id=1"):
        dataset.batches(1, image_size=64)


def all_shapes(tmp_path):
    """A dataset of an object of each kind of shape, one without, and a crowd."""
    file = coco_file(
        tmp_path,
        object_of(3, [2, 3, 6, 6], polygon(2, 3, 6, 6)),
        object_of(7, [10, 3, 4, 5], run_lengths(box_pixels(10, 3, 4, 5))),
        object_of(3, [16, 3, 4, 5], run_lengths(box_pixels(16, 3, 4, 5), False)),
        object_of(7, [1, 12, 6, 6]),
        object_of(3, [20, 10, 8, 8], run_lengths(box_pixels(20, 10, 8, 8)))
        | {"iscrowd": 1},
    )
    return from_coco(file, tmp_path, masks=True)


def test_shapes_of_objects_are_written_to_coco(tmp_path):
    dataset = all_shapes(tmp_path)
    ek.data.write_coco({"train": dataset}, tmp_path / "out")
    again = ek.data.load(tmp_path / "out", "train", masks=True)
    np.testing.assert_array_equal(again[0]["mask"], dataset[0]["mask"])
    assert again.seg_class_names == dataset.seg_class_names
    plain = from_coco(tmp_path / "a.json", tmp_path)  # was read without masks
    ek.data.write_coco({"train": plain}, tmp_path / "plain")
    assert "segmentation" not in (tmp_path / "plain" / "train.json").read_text()


def test_shapes_of_objects_are_written_to_tfrecords_and_on_to_coco(tmp_path):
    dataset = all_shapes(tmp_path)
    ek.data.write_tfrecord({"train": dataset}, tmp_path / "out")
    again = ek.data.load(tmp_path / "out", "train", masks=True)
    expected = dataset[0]["mask"].copy()
    expected[expected == 255] = 2  # of the dog there is only a box, which is its mask
    np.testing.assert_array_equal(again[0]["mask"], expected)
    ek.data.write_coco({"train": again}, tmp_path / "coco")
    last = ek.data.load(tmp_path / "coco", "train", masks=True)
    np.testing.assert_array_equal(last[0]["mask"], expected)


def test_masks_of_whole_images_are_written_beside_coco_and_not_to_tfrecords(tmp_path):
    mask = np.arange(600).reshape(20, 30).astype("uint8") % 3
    dataset = folder_of_masks(tmp_path, mask).with_masks(tmp_path / "masks", NAMES)
    ek.data.write_coco({"train": dataset}, tmp_path / "out")
    again = ek.data.load(tmp_path / "out", "train")
    again = again.with_masks(tmp_path / "out" / "train_masks", NAMES)
    np.testing.assert_array_equal(again[0]["mask"], mask)
    with pytest.raises(ValueError, match="no mask of a whole image, which 'a.jpg'"):
        ek.data.write_tfrecord({"train": dataset}, tmp_path / "records")
    assert not (tmp_path / "records").exists()


@pytest.mark.parametrize("write", ["write_csv", "write_voc", "write_yolo"])
def test_formats_of_boxes_alone_say_that_masks_are_lost(tmp_path, write):
    mask = np.zeros((20, 30), "uint8")
    dataset = folder_of_masks(tmp_path, mask)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(ek.data, write)({"train": dataset}, tmp_path / "without")
    dataset = dataset.with_masks(tmp_path / "masks", NAMES)
    with pytest.warns(UserWarning, match="cannot store masks: `write_coco`"):
        getattr(ek.data, write)({"train": dataset}, tmp_path / "out")
