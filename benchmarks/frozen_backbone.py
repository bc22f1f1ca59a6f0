"""Detectors on a frozen backbone that is computed once, for benchmarks of many of them.

A question such as "which images should be labelled next?" needs dozens of trainings.
Most of their time is spent in the ImageNet backbone of Lite0, so here it is frozen.
`FrozenBackbone` computes its features for some views of every image. Each detector only
trains the BiFPN and the heads on these features, with the losses, the matching and the
anchors of the package. AP is lower than with `EfficientDet.fit`, which also trains the
backbone, so such numbers can only be compared with each other. With `--whole`, each
detector is trained as users train it (`WholeTraining`), which takes many times as long.
"""

import json
import pathlib

import keras
import numpy as np
import tensorflow as tf
from default_training import new_model, num_epochs
from PIL import Image

import effdet_keras as ek
from effdet_keras.detect.detections import Detections
from effdet_keras.evaluate.image_result import ImageResult

_BLOOD_CELLS = pathlib.Path(ek.data.__file__).parent / "blood_cells"
_JUDGES = ("test", "val", "valid", "validation")

_VIEWS = 4  # the image, its mirror image, and a crop of each
_RATE, _CLIP = 3e-3, 5.0
_MAX_BOXES = 100
_LEAST_SEEN = 0.4  # fraction of a box in a crop: with less, it is no object there


def open_data(name, options):
    """Returns a backbone, the indices of training images, and those for evaluation.

    Args:
        name: `blood-cells`, or a path; `test` is for evaluation, or `val` if there is
            no `test`.
        options: has `image_size`, `num_judges`, `quick` and `whole`.
    """
    splits = ek.data.load_splits(_BLOOD_CELLS if name == "blood-cells" else name)
    judge = next(splits[split] for split in _JUDGES if split in splits)
    train, judge = splits["train"], judge[: options.num_judges]
    if options.quick:
        train, judge = train[:40], judge[:4]
    both = train.concatenate(judge)
    count = len(train)
    if options.whole:
        backbone = WholeTraining(both, options.quick)
    else:
        backbone = FrozenBackbone(both, count, options.image_size)
    return backbone, np.arange(count), np.arange(count, len(both))


def add_arguments(parser, steps):
    """Adds the arguments of all benchmarks of many detectors."""
    add = parser.add_argument
    add("data", nargs="*", default=["blood-cells"], help="`blood-cells`, or a path")
    add("--seeds", nargs="+", type=int, default=[0])
    add("--steps", type=int, default=steps, help="of each training, 8 images each")
    add("--image-size", nargs=2, type=int, default=[192, 256])
    add("--num-judges", type=int, help="judge on so many images")
    add("--whole", action="store_true", help="train whole models by the default recipe")
    add("--quick", action="store_true", help="a smoke test: 40 images, 2 steps")


def read_arguments(parser):
    options = parser.parse_args()
    if options.quick:
        options.steps, options.image_size = 2, [64, 64]
    return options


def print_lines(options, run):
    """Prints a JSON line for each dataset and seed; returns these lines.

    `run` takes the backbone, the indices for training and for evaluation, and the seed.
    It returns the rest of the line.
    """
    lines = []
    for name in options.data:
        backbone, train, judge = open_data(name, options)
        for seed in options.seeds:
            line = {"dataset": pathlib.Path(name).name, "seed": seed}
            line |= {"whole": options.whole, "steps": options.steps}
            line |= run(backbone, train, judge, seed)
            print(json.dumps(line), flush=True)
            lines.append(line)
    return lines


class Detectors:
    """Evaluates the `detect` of subclasses on images of `dataset`."""

    def results(self, indices, records=None):
        """Returns `ImageResult`s of some images, with the boxes of `records`."""
        records = self.dataset.records if records is None else records
        return [
            ImageResult(
                records[index].image_id,
                boxes_of(records[index]),
                records[index].labels,
                found.boxes,
                found.scores,
                found.labels,
                truth_is_crowd=records[index].is_crowd,
                name=records[index].name,
            )
            for index, found in zip(indices, self.detect(indices))
        ]

    def ap(self, indices):
        """Returns COCO's metrics of the detector on some images."""
        judge = self.dataset.subset(indices)
        metric = ek.metrics.COCOMetric(judge.to_coco())
        for image_id, found in zip(judge.image_ids, self.detect(indices)):
            metric.update(
                image_id,
                boxes=found.boxes,
                scores=found.scores,
                category_ids=[judge.category_ids[label] for label in found.labels],
            )
        return {name: float(value) for name, value in metric.result().items()}


class WholeTraining(Detectors):
    """Detectors that the default recipe trains, from an ImageNet backbone.

    Args:
        dataset: `DetectionDataset` of all images, for training and for evaluation.
        quick: bool, whether to use the image size of a smoke test.
    """

    def __init__(self, dataset, quick):
        self.dataset, self.image_size = dataset, 64 if quick else None
        self.model = None

    def train(self, indices, steps, seed, *, records=None, batch_size=8):
        """Trains a new `model` on some images, for about `steps` steps.

        Args:
            indices: ints, the indices of the images in the dataset.
            records: `Record`s of all images, with other boxes; None for the dataset's.
        """
        records = self.dataset.records if records is None else records
        train = ek.data.DetectionDataset(
            [records[i] for i in indices],
            self.dataset.class_names,
            self.dataset.category_ids,
        )
        self.model = new_model(train, seed, self.image_size)
        self.model.compile()
        epochs = num_epochs(train, steps, batch_size)
        self.model.fit(train, batch_size=batch_size, epochs=epochs, verbose=0)

    def detect(self, indices, *, mirrored=False):
        """Returns `Detections` of each image, or of its mirror image, in its pixels."""
        images = [self.dataset[index]["image"] for index in indices]
        images = [np.ascontiguousarray(x[:, ::-1]) if mirrored else x for x in images]
        return self.model.detect(images, score_threshold=0.0, verbose=0)


class FrozenBackbone(Detectors):
    """Features of the images of a dataset, and detectors trained on them.

    Args:
        dataset: `DetectionDataset` of all images, for training and for evaluation. The
            anchors are fitted to the boxes of its first `anchor_images`.
        anchor_images: int, number of images.
        image_size: `(height, width)` of the input.
    """

    def __init__(self, dataset, anchor_images, image_size):
        keras.utils.set_random_seed(0)
        self.dataset, self.image_size = dataset, tuple(image_size)
        self.model = ek.EfficientDet.from_preset(
            "efficientdet-lite0",
            "imagenet",
            dataset=dataset.subset(range(anchor_images)),
            image_size=self.image_size,
            anchors="auto",
            batch_norm_momentum=0.9,
            verbose=0,
        )
        loss = ek.DetectionLoss(iou_loss_type="ciou", iou_loss_weight=4.0)
        matching = ek.matching.ATSSMatching()
        self.model.compile("adamw", loss, matching=matching, ema_decay=None)
        backbone = next(
            layer
            for layer in self.model.layers
            if layer.name.startswith("efficientnet")
        )
        levels = list(backbone.output)
        self._backbone = keras.Model(self.model.input, levels)
        self.head = keras.Model(levels, self.model.output)
        self._initial = [variable.numpy() for variable in self.head.weights]
        self._optimizer = None
        self._features = [
            np.zeros((len(dataset), _VIEWS, *x.shape[1:]), "float16") for x in levels
        ]
        self._scales = np.zeros(len(dataset))  # input pixels per image pixel
        self._affine = np.zeros((len(dataset), _VIEWS, 4))  # scale, flip, y, x
        self._compute()

    def _compute(self):
        """Computes the features of each view of each image."""
        random, batch, places = np.random.default_rng(0), [], []
        predict = tf.function(lambda x: self._backbone(x, training=False))
        for index in range(len(self.dataset)):
            image = Image.fromarray(self.dataset[index]["image"])
            height, width = self.image_size
            self._scales[index] = min(height / image.height, width / image.width)
            for view in range(_VIEWS):
                batch.append(self._view(image, index, view, random))
                places.append((index, view))
            if len(batch) >= 4 * _VIEWS or index == len(self.dataset) - 1:
                for stored, found in zip(self._features, predict(np.stack(batch))):
                    for (i, view), value in zip(places, found.numpy()):
                        stored[i, view] = value
                batch, places = [], []

    def _view(self, image, index, view, random):
        """Returns a view of an image, float32 `[H, W, 3]`; records its geometry."""
        scale, is_mirrored = self._scales[index], view % 2
        size = np.array([image.height, image.width]) * scale
        offset = np.zeros(2)
        if view >= 2:
            factor = random.uniform(0.7, 1.4)
            scale, size = scale * factor, size * factor
            room = np.array(self.image_size) - size  # below 0, the crop may move
            offset = random.uniform(np.minimum(room, 0), np.maximum(room, 0))
        mirrored_from = size[1] + 2 * offset[1] if is_mirrored else 0.0
        self._affine[index, view] = scale, mirrored_from, *offset
        pixels = image.transpose(Image.FLIP_LEFT_RIGHT) if is_mirrored else image
        new = pixels.transform(
            self.image_size[::-1],
            Image.AFFINE,
            (1 / scale, 0, -offset[1] / scale, 0, 1 / scale, -offset[0] / scale),
            Image.BILINEAR,
        )
        return np.asarray(new, "float32")

    def _boxes(self, record, index, view):
        """Returns a record's boxes in a view, `yxyx` in input pixels, and labels."""
        scale, mirrored_from, y, x = self._affine[index, view]
        boxes = boxes_of(record) * scale + [y, x, y, x]
        if mirrored_from:
            boxes[:, [1, 3]] = mirrored_from - boxes[:, [3, 1]]
        height, width = self.image_size
        inside = np.clip(boxes, 0, [height, width, height, width])
        seen = area(inside) >= _LEAST_SEEN * area(boxes)
        seen &= (area(inside) > 4) & ~record.is_crowd
        return inside[seen][:_MAX_BOXES], record.labels[seen][:_MAX_BOXES]

    def train(self, indices, steps, seed, *, records=None, batch_size=8):
        """Trains a new detector on some images, which then is `head`.

        Args:
            indices: ints, the indices of the images in the dataset.
            records: `Record`s of all images, with other boxes; None for the dataset's.
        """
        records = self.dataset.records if records is None else records
        random = np.random.default_rng(seed)
        self._begin(steps)
        order = []
        for _ in range(steps):
            while len(order) < batch_size:
                order += random.permutation(indices).tolist()
            chosen, order = order[:batch_size], order[batch_size:]
            views = random.integers(_VIEWS, size=batch_size)
            boxes = np.zeros((batch_size, _MAX_BOXES, 4), "float32")
            labels = np.full((batch_size, _MAX_BOXES), -1, "int32")
            for k, (index, view) in enumerate(zip(chosen, views)):
                found, classes = self._boxes(records[index], index, view)
                boxes[k, : len(found)], labels[k, : len(found)] = found, classes
            self._step([x[chosen, views] for x in self._features], boxes, labels)

    def _begin(self, steps):
        """Restores the initial weights; sets a new schedule, and compiles once."""
        for variable, value in zip(self.head.weights, self._initial):
            variable.assign(value)
        if self._optimizer is None:
            self._steps = tf.Variable(float(steps))
            self._optimizer = keras.optimizers.AdamW(_RATE, clipnorm=None)
            self._optimizer.build(self.head.trainable_variables)
            self._step = tf.function(self._make_step(), reduce_retracing=True)
            self._detect = tf.function(self._make_detect(), reduce_retracing=True)
        for variable in self._optimizer.variables:
            if variable is not self._optimizer._learning_rate:
                variable.assign(np.zeros(variable.shape))
        self._steps.assign(float(steps))

    def _make_step(self):
        def step(features, boxes, labels):
            truth = {"boxes": boxes, "labels": labels}
            done = tf.cast(self._optimizer.iterations, "float32") / self._steps
            warm = tf.minimum(done * 10.0, 1.0)
            rate = _RATE * warm * (0.5 + 0.5 * tf.cos(np.pi * done))
            self._optimizer.learning_rate.assign(rate)
            variables = self.head.trainable_variables
            with tf.GradientTape() as tape:
                outputs = self.head(
                    [tf.cast(x, "float32") for x in features], training=True
                )
                loss = self.model.compute_losses(truth, outputs, training=True)["loss"]
            gradients = tape.gradient(loss, [v.value for v in variables])
            gradients, _ = tf.clip_by_global_norm(gradients, _CLIP)
            self._optimizer.apply(gradients)
            return loss

        return step

    def _make_detect(self):
        def found(features):
            outputs = self.head(
                [tf.cast(x, "float32") for x in features], training=False
            )
            return self.model.detect_outputs(outputs)

        return found

    def detect(self, indices, *, mirrored=False, batch_size=16):
        """Returns `Detections` of each image, or of its mirror image, in its pixels."""
        results = []
        for first in range(0, len(indices), batch_size):
            chosen = list(indices[first : first + batch_size])
            padded = (chosen * batch_size)[:batch_size]
            found = self._detect([x[padded, int(mirrored)] for x in self._features])
            found = {name: np.asarray(value) for name, value in found.items()}
            for k, index in enumerate(chosen):
                record = self.dataset.records[index]
                height, width = record.image_size
                count = int(found["num_detections"][k])
                boxes = found["boxes"][k, :count] / self._scales[index]
                results.append(
                    Detections(
                        np.clip(boxes, 0, [height, width, height, width]),
                        found["scores"][k, :count],
                        found["labels"][k, :count],
                    )
                )
        return results


def boxes_of(record):
    """Returns the boxes of a record, `yxyx` in pixels of the image."""
    boxes = record.boxes_xywh[:, [1, 0, 3, 2]].astype("float64")
    boxes[:, 2:] += boxes[:, :2]
    return boxes


def area(boxes):
    return np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1)
