"""Boxes move as a filled mask does: every augmentation that moves pixels."""

import numpy as np
import pytest
import tensorflow as tf

import effdet_keras as ek
from effdet_keras.augment.warps import visible_hulls
from effdet_keras.extras import policies as policy_run

pytestmark = pytest.mark.tensorflow

HEIGHT, WIDTH = 400, 500
BOXES = np.float32(
    [[20, 30, 220, 240], [150, 200, 390, 490], [200, 5, 395, 205], [0, 250, 180, 500]]
)
MIN_SIDE = 100  # pixels: half a pixel of interpolation is then below 1 %


class OneOperation(ek.augment.Augmentation):
    """One operation of AutoAugment at its highest level."""

    long_side, min_visibility, reference_boxes = 640.0, 0.0, False

    def __init__(self, name):
        self.name = name

    def augment(self, example, seed):
        policy = [[(self.name, 1.0, 10)]]
        return policy_run.run_sub_policy(example, seed, policy, tf.constant(0), self)


AUGMENTATIONS = {
    "rotate": ek.augment.Rotate(40.0, fill=0.0, min_visibility=0.0),
    "shear": ek.augment.Shear(0.4, 0.4, fill=0.0, min_visibility=0.0),
    "crop": ek.augment.RandomCrop(min_visibility=0.0),
    "crop of two": ek.augment.Compose([ek.augment.RandomCrop(area=(0.5, 0.9))] * 2),
    "mosaic": ek.augment.Mosaic(center=(0.4, 0.6), min_visibility=0.0),
    "mixup": ek.augment.MixUp(0.5),
    "mosaic, crop": [ek.augment.Mosaic(), ek.augment.RandomCrop(area=(0.7, 0.9))],
    **{
        name: ek.augment.PreprocessingStep(name, **options)
        for name, options in {
            "random_horizontal_flip": {"probability": 1},
            "random_vertical_flip": {"probability": 1},
            "random_rotation90": {"probability": 1},
            "random_image_scale": {"min_scale_ratio": 0.9},
            "random_downscale_to_target_pixels": {"min_target_pixels": 90_000},
            "random_scale_crop_and_pad_to_square": {"scale_min": 0.8},
            "random_square_crop_by_scale": {},
            "random_pad_image": {},
            "random_absolute_pad_image": {"max_height_padding": 99},
            "random_crop_image": {"min_area": 0.5},
            "random_crop_pad_image": {"min_area": 0.5},
            "random_crop_to_aspect_ratio": {},
            "ssd_random_crop": {},
            "ssd_random_crop_pad": {},
            "ssd_random_crop_fixed_aspect_ratio": {},
            "ssd_random_crop_pad_fixed_aspect_ratio": {},
        }.items()
    },
    **{
        name: OneOperation(f"{name}_BBox")
        for name in ("Rotate", "ShearX", "ShearY", "TranslateX", "TranslateY")
    },
}


def mask_of(box, scale):
    """A white rectangle; the examples of a mosaic differ in size and shape."""
    image = np.zeros((int(HEIGHT * scale[0]), int(WIDTH * scale[1]), 3), "uint8")
    y0, x0, y1, x1 = (box * scale).astype(int)
    image[y0:y1, x0:x1] = 255
    return image


def hull_of(image, threshold):
    mask = image[..., 0] > threshold
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not len(rows):
        return np.zeros(4)
    return np.array([rows[0], columns[0], rows[-1] + 1, columns[-1] + 1], float)


def iou(a, b):
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    inside = np.prod(np.maximum(high - low, 0))
    return inside / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - inside)


def examples_with(image_of, count):
    """Examples of all boxes; labels tell which box of which example it is."""
    examples = []
    for i in range(count):
        scale = np.tile([1.0 - 0.05 * i, 1.0 - 0.12 * i], 2)
        examples.append(
            {
                "image": image_of(i, scale),
                "boxes": np.trunc(BOXES * scale),
                "labels": 10 * i + np.arange(len(BOXES)),
            }
        )
    return examples


@pytest.mark.smoke
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_boxes_are_the_hulls_of_masks_moved_with_them(name):
    augment = AUGMENTATIONS[name]
    if isinstance(augment, list):
        augment = ek.augment.Compose(augment)
    count = augment.num_images
    # MixUp leaves half of 255; the fill of AutoAugment is 128.
    threshold = 64 if name == "mixup" else 150
    checked = 0
    for seed in ([3, 1], [3, 2], [3, 3])[: 3 if count == 1 else 1]:
        for of in range(count):
            for which in range(len(BOXES))[: 4 if count == 1 else 2]:

                def image_of(i, scale, of=of, which=which):
                    mask = mask_of(BOXES[which], scale)
                    return mask if i == of else np.zeros_like(mask)

                examples = examples_with(image_of, count)
                result = augment(examples[0] if count == 1 else examples, seed)
                hull = hull_of(result["image"].numpy(), threshold)
                is_it = result["labels"].numpy() == 10 * of + which
                if min(hull[2:] - hull[:2]) < MIN_SIDE:
                    continue
                # A crop drops boxes of which little is left, whatever its size.
                if not is_it.any() and "crop" in name:
                    continue
                (box,) = result["boxes"].numpy()[is_it]
                assert iou(box, hull) >= 0.98, (seed, of, which, box, hull)
                checked += 1
    assert checked >= 2


def test_an_image_inside_a_turned_box_is_its_hull():
    quads = np.float32([[[-100, 50], [50, 200], [200, 50], [50, -100]]])
    hulls = visible_hulls(quads, 80.0, 100.0).numpy().tolist()
    assert hulls == [[0.0, 0.0, 80.0, 100.0]]
