"""KerasHub's side of `scorecard.py`: its RetinaNet on the same pretrained backbone.

Feature pyramid, heads, anchors, matching, losses and NMS are KerasHub's own, with the
defaults of `compile`. All weights are trained. The batches, with flips and scale
jitter, are ours. The optimizer is Adam, KerasHub's default, with a warm-up and a cosine
schedule.
"""

import keras
import keras_hub
from keras import ops

import effdet_keras as ek

LEVELS = (3, 5)  # of the backbone; the pyramid continues to 7
EVALUATION_BATCH = 8


def train(train, judge, *, model, size, batch_size, epochs, rate):
    """Trains; returns steps and `(image id, label, score, [y1, x1, y2, x2])`s."""
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
    """Returns our backbone, with its normalization, as a backbone for KerasHub."""
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
    """Detects in images that are letterboxed as in our evaluation; boxes in pixels."""
    for images, truth in judge.batches(EVALUATION_BATCH, image_size=size):
        # `predict` of KerasHub 0.32 needs a batch size that is known before.
        raw = detector(images, training=False)
        rows = detector.decode_predictions(raw, images)
        rows = {name: ops.convert_to_numpy(array) for name, array in rows.items()}
        boxes = rows["boxes"] * truth["image_scale"].numpy()[:, None, None]
        for i, image_id in enumerate(truth["image_id"].numpy().tolist()):
            for j in range(rows["num_detections"][i]):
                label, score = rows["labels"][i, j], rows["confidence"][i, j]
                yield image_id, int(label), float(score), boxes[i, j].tolist()
