"""KerasHub's side of `scorecard.py`: its RetinaNet on the same pretrained backbone.

Feature pyramid, heads, anchors, matching, losses and NMS are KerasHub's own, with the
defaults of `compile`, and all weights train. Batches, with flips and scale jitter, are
ours. The optimizer is Adam, KerasHub's default, with a warm-up and a cosine.
"""

import keras
import keras_hub
import numpy as np
from keras import ops

import effdet_keras as ek

LEVELS = (3, 5)  # of the backbone; the pyramid goes on to 7
EVALUATION_BATCH = 8


def train(train, judge, *, model, size, batch_size, epochs, rate):
    """Trains; returns the steps and `(image id, label, score, [y1, x1, y2, x2])`s."""
    own = ek.EfficientDet.from_preset(
        model,
        "imagenet",
        dataset=train,
        image_size=size,
        batch_norm_momentum=0.9,
        verbose=0,
    )
    steps = epochs * (len(train) // batch_size)
    detector = keras_hub.models.RetinaNetObjectDetector(
        keras_hub.models.RetinaNetBackbone(
            encoder_of(own),
            min_level=3,
            max_level=7,
            use_p5=False,
            image_shape=(*size, 3),
        ),
        num_classes=train.num_classes,
    )
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=rate, warmup_steps=max(steps // 20, 1)
    )
    detector.compile(keras.optimizers.Adam(schedule, global_clipnorm=10.0))
    batches = own.batches(train, batch_size, training=True, augment=None)
    detector.fit(batches.map(as_kerashub), epochs=epochs, verbose=0)
    return {"steps": steps, "detections": list(detect(detector, judge, size))}


def encoder_of(model):
    """Our backbone, with its normalisation, as one that KerasHub takes."""
    (backbone,) = (x for x in model.layers if x.name.startswith("efficientnet"))
    encoder = keras.Model(model.inputs, backbone.output)
    first, last = LEVELS
    levels = range(first, last + 1)
    encoder.pyramid_outputs = {
        f"P{level}": output for level, output in zip(levels, backbone.output)
    }
    return encoder


def as_kerashub(images, truth):
    is_object = truth["labels"] >= 0
    boxes = ops.where(is_object[..., None], truth["boxes"], -1.0)
    return images, {"boxes": boxes, "labels": truth["labels"]}


def detect(detector, judge, size):
    """Letterboxed as in our evaluation; boxes in pixels of the images."""
    for start in range(0, len(judge), EVALUATION_BATCH):
        records = judge[start : start + EVALUATION_BATCH].records
        arrays = [ek.images.read_image(record.image) for record in records]
        found = [letterboxed(array, size) for array in arrays]
        images = np.stack([image for image, _ in found])
        # `predict` of KerasHub 0.32 asks for a batch size that is known before.
        raw = detector(images, training=False)
        rows = detector.decode_predictions(raw, ops.convert_to_tensor(images))
        rows = {name: ops.convert_to_numpy(array) for name, array in rows.items()}
        for i, (record, (_, scale)) in enumerate(zip(records, found)):
            count = rows["num_detections"][i]
            for box, score, label in zip(
                rows["boxes"][i][:count],
                rows["confidence"][i][:count],
                rows["labels"][i][:count],
            ):
                box = (box / scale).tolist()
                yield record.image_id, int(label), float(score), box


def letterboxed(array, size):
    scale = min(side / length for side, length in zip(size, array.shape))
    height, width = (round(length * scale) for length in array.shape[:2])
    image = np.zeros((*size, 3), "float32")
    image[:height, :width] = ops.image.resize(array.astype("float32"), (height, width))
    return image, scale
