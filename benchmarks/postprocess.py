"""How long does the postprocess of D0 take: 49,104 anchors of 90 classes to 100 boxes?

It measures ours, Gaussian (the default) and hard;
`tf.image.combined_non_max_suppression` with the decoding that it needs; and PyTorch
effdet's. They do different work:

- "ours", "ours_hard": the 5,000 best (anchor, class) pairs, decode, NMS, clip
- "ours_numpy", "ours_numpy_hard": the same detections from arrays, which `Predictor`
  uses for a file with raw outputs, or for a live model in another runtime
- "ours_numpy_all": considers all 5,000 pairs, and not the best 2,000 first
- "tensorflow": all anchors decoded, all scores above 0.05, hard NMS within classes
- "tensorflow_top_k": the same on the 5,000 anchors with the best scores
- "peer": the 5,000 best pairs, decode, hard NMS of torchvision, or of our stand-in for
  it, which is slower
- "peer_gaussian": the same with effdet's own Gaussian NMS, which needs no torchvision
"""

import functools

import alternate
import numpy as np

SIZE = 512
NUM_CLASSES = 90
LEVELS = (3, 4, 5, 6, 7)
ANCHORS_A_PLACE = 9
NUM_OBJECTS = 30
CANDIDATES = 5000
MAX_DETECTIONS = 100


def _repeats(quick):
    return 2 if quick else 30


def ours(quick, **options):
    import tensorflow as tf

    from effdet_keras import Postprocess

    postprocess, anchors = Postprocess(**options), _anchors()

    @tf.function
    def step(class_logits, box_deltas):
        outputs = {"class_logits": class_logits, "box_deltas": box_deltas}
        return postprocess(outputs, anchors, (SIZE, SIZE))

    return _measured(quick, step)


def ours_numpy(quick, first=None, **options):
    from effdet_keras.detect import postprocess

    if first is not None:
        postprocess._FIRST_OF_ARRAYS = first
    class_logits, box_deltas = _network_outputs()
    step = functools.partial(
        postprocess.Postprocess(**options),
        {"class_logits": class_logits, "box_deltas": box_deltas},
        _anchors(),
        (SIZE, SIZE),
    )
    return {"1 image": alternate.repeat(step, _repeats(quick))}


def tensorflow(quick, candidates=None):
    import tensorflow as tf

    from effdet_keras.box_ops import decode_boxes

    anchors = tf.constant(_anchors())

    @tf.function
    def step(class_logits, box_deltas):
        chosen = anchors
        if candidates:
            best = tf.reduce_max(class_logits, axis=-1)
            indices = tf.math.top_k(best, candidates).indices
            class_logits = tf.gather(class_logits, indices, batch_dims=1)
            box_deltas = tf.gather(box_deltas, indices, batch_dims=1)
            chosen = tf.gather(anchors, indices)
        boxes = decode_boxes(box_deltas, chosen)
        found = tf.image.combined_non_max_suppression(
            boxes[:, :, None],
            tf.sigmoid(class_logits),
            max_output_size_per_class=MAX_DETECTIONS,
            max_total_size=MAX_DETECTIONS,
            iou_threshold=0.5,
            score_threshold=0.05,
            clip_boxes=False,
        )
        return {"boxes": found.nmsed_boxes}

    return _measured(quick, step)


def _measured(quick, step):
    import tensorflow as tf

    outputs = [tf.constant(array) for array in _network_outputs()]
    run = functools.partial(_run_and_wait, step, outputs)
    return {"1 image": alternate.repeat(run, _repeats(quick))}


def _run_and_wait(step, outputs):
    step(*outputs)["boxes"].numpy()


def _anchors():
    from effdet_keras.network.anchors import anchors_of
    from effdet_keras.network.config import EfficientDetConfig

    return anchors_of(EfficientDetConfig.from_name("efficientdet-d0"))


def peer(quick, soft_nms=False):
    import torch
    from peer import network

    bench = network("predict")
    # Imported after `peer`, which provides a stand-in for torchvision.
    from effdet.bench import _batch_detection, _post_process

    class_logits, box_deltas = (_level_by_level(a) for a in _network_outputs())
    class_logits, box_deltas = (
        [torch.from_numpy(level) for level in levels]
        for levels in (class_logits, box_deltas)
    )

    def step():
        logits, deltas, indices, classes = _post_process(
            class_logits, box_deltas, len(LEVELS), NUM_CLASSES, CANDIDATES
        )
        return _batch_detection(
            1,
            logits,
            deltas,
            bench.anchors.boxes,
            indices,
            classes,
            None,
            None,
            max_det_per_image=MAX_DETECTIONS,
            soft_nms=soft_nms,
        )

    with torch.inference_mode():
        return {"1 image": alternate.repeat(step, _repeats(quick))}


def _network_outputs():
    """Returns `class_logits` `[1, N, C]` and `box_deltas` `[1, N, 4]` as if trained.

    The background is about -7. Each object raises its class to 0 to 3 at the 81 anchors
    of 3 x 3 places of one level.
    """
    rng = np.random.default_rng(0)
    logits = []
    for level in LEVELS:
        side = SIZE // 2**level
        shape = (side, side, ANCHORS_A_PLACE, NUM_CLASSES)
        logits.append(rng.normal(-7, 1, shape).astype("float32"))
    for _ in range(NUM_OBJECTS):
        level = logits[rng.integers(len(LEVELS) - 1)]
        y, x = rng.integers(level.shape[0] - 2, size=2)
        label = rng.integers(NUM_CLASSES)
        level[y : y + 3, x : x + 3, :, label] = rng.uniform(0, 3) + rng.normal(
            -1, 1, (3, 3, ANCHORS_A_PLACE)
        )
    flat = [level.reshape(-1, NUM_CLASSES) for level in logits]
    class_logits = np.concatenate(flat)[None]
    deltas = rng.normal(0, 0.15, (1, class_logits.shape[1], 4)).astype("float32")
    return class_logits, deltas


def _level_by_level(flat):
    """Splits `[1, N, K]` into levels `[1, 9 * K, H, W]`, like effdet's heads."""
    levels, start = [], 0
    for level in LEVELS:
        side = SIZE // 2**level
        stop = start + side * side * ANCHORS_A_PLACE
        level = flat[0, start:stop].reshape(1, side, side, -1)
        levels.append(np.ascontiguousarray(level.transpose(0, 3, 1, 2)))
        start = stop
    return levels


if __name__ == "__main__":
    alternate.main(
        __doc__,
        {
            "ours": ours,
            "ours_hard": functools.partial(ours, method="hard"),
            "ours_numpy": ours_numpy,
            "ours_numpy_hard": functools.partial(ours_numpy, method="hard"),
            "ours_numpy_all": functools.partial(ours_numpy, first=CANDIDATES),
            "tensorflow": tensorflow,
            "tensorflow_top_k": functools.partial(tensorflow, candidates=CANDIDATES),
            "peer": peer,
            "peer_gaussian": functools.partial(peer, soft_nms=True),
        },
        allocators=["tuned"],
    )
