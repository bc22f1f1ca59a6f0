"""Follows one image of the blood cells through one training step, number by number.

python benchmarks/draw_training_step.py --out docs/images/training_step.jpg

Prints the shapes of every stage, the matched anchors, the loss terms, the gradients and
what the step moves; draws ground truth and matched anchors. docs/training_step.md shows
both. `efficientdet-lite0` starts from random weights with seed 0, so that the script
needs no file of weights.
"""

import argparse
import pathlib

import keras
import numpy as np

import effdet_keras as ek
from effdet_keras.network.anchors import level_sizes
from effdet_keras.train.losses import focal_loss, huber_loss

DATA = pathlib.Path(ek.__file__).parent / "data" / "blood_cells"
IMAGE = 135  # of the training images: it has all classes, and only six boxes
LEARNING_RATE = 0.005
CLIP_NORM = 10.0  # the recipe's
LOSS = ek.DetectionLoss(iou_loss_type="ciou", iou_loss_weight=4.0)  # the recipe's
RULES = {
    "ATSS (the recipe's)": ek.matching.ATSSMatching(),
    "IoU of 0.5 (the reference's)": ek.matching.IoUMatching(),
}


def dataset():
    """The training images of the blood cells."""
    return ek.data.from_coco(DATA / "train.json", DATA / "train")


def new_model(train):
    """A model with fitted size and anchors, and random weights."""
    keras.utils.set_random_seed(0)
    return ek.EfficientDet.from_preset(
        "efficientdet-lite0", dataset=train, image_size="auto", anchors="auto"
    )


def batch_of_one(model, train):
    """`(images [1, H, W, 3], ground truth)`, letterboxed and not augmented."""
    return next(iter(model.batches(train[IMAGE : IMAGE + 1], 1)))


def shapes(model, images):
    """Stage, and its shape or the shapes of its levels, in the order of the network."""
    yield "image", [images.shape]
    layers = model.layers[1:]  # the first is the input itself
    outputs = keras.Model(model.inputs, [layer.output for layer in layers])(images)
    for layer, output in zip(layers, outputs):
        levels = output if isinstance(output, (list, tuple)) else [output]
        yield layer.name, [tuple(level.shape) for level in levels]


def level_of_anchors(config):
    """The pyramid level of each anchor, int `[N]`."""
    sizes = level_sizes(config.image_size, config.min_level, config.max_level)
    counts = [height * width * config.num_anchors for height, width in sizes]
    return np.repeat(np.arange(config.min_level, config.max_level + 1), counts)


def matched(rule, model, truth):
    """The class target of each anchor `[N]`, and its box target `[N, 4]`."""
    targets = rule(truth["boxes"], truth["labels"], model.anchors, model.config)
    return [keras.ops.convert_to_numpy(one)[0] for one in targets[:2]]


def matching_numbers(model, truth):
    """For each rule: positive anchors, of which level, and of which class."""
    levels = level_of_anchors(model.config)
    for name, rule in RULES.items():
        classes, _ = matched(rule, model, truth)
        positive = classes >= 0
        of_level = {int(k): int((positive & (levels == k)).sum()) for k in set(levels)}
        of_class = np.bincount(classes[positive], minlength=model.num_classes)
        yield name, int(positive.sum()), of_level, of_class.tolist()


def forward_and_gradients(model, images, truth):
    """Network outputs, targets, loss terms, and the gradient of each variable."""
    import tensorflow as tf

    rule = next(iter(RULES.values()))
    with tf.GradientTape() as tape:
        outputs = model(images, training=True)
        class_targets, box_targets = rule(
            truth["boxes"], truth["labels"], model.anchors, model.config
        )
        terms = LOSS(
            class_targets,
            box_targets,
            outputs["class_logits"],
            outputs["box_deltas"],
            model.anchors,
        )
    gradients = tape.gradient(terms["loss"], model.trainable_variables)
    return outputs, class_targets, box_targets, terms, gradients


def loss_numbers(outputs, class_targets, box_targets, terms):
    """The terms of the loss, and the parts of which they are made."""
    ops = keras.ops
    is_positive = class_targets >= 0
    num_positives = int(ops.sum(is_positive))
    focal = focal_loss(class_targets, outputs["class_logits"])
    deltas = ops.where(is_positive[..., None], outputs["box_deltas"], 0.0)
    scores = ops.sigmoid(outputs["class_logits"])
    return {
        "mean score of all anchors": float(ops.mean(scores)),
        "positive anchors P": num_positives,
        "normalizer n = P + 1": num_positives + 1,
        "sum of the focal loss": float(ops.sum(focal)),
        "sum of the Huber loss": float(ops.sum(huber_loss(box_targets, deltas))),
        **{name: float(value) for name, value in terms.items()},
    }


def gradient_numbers(variables, gradients):
    """Norms of the gradients before and after clipping."""
    norms = np.array([norm([array(gradient)]) for gradient in gradients])
    each = np.minimum(norms, CLIP_NORM)
    largest = variables[int(norms.argmax())].path
    return {
        "trainable variables": len(variables),
        "trainable weights": sum(array(v).size for v in variables),
        "norm of all gradients": float(np.sqrt((norms**2).sum())),
        "largest norm of one gradient": float(norms.max()),
        f"gradients with a norm above {CLIP_NORM:g}": int((norms > CLIP_NORM).sum()),
        f"norm after each is clipped to {CLIP_NORM:g}": float(np.sqrt((each**2).sum())),
    }, largest


def step_numbers(model, images, truth, ema_decay):
    """What one training step logs, and how far the weights of the model move.

    After the step the model has its moving averages, where there are any.
    """
    model.compile(
        "muon",
        LOSS,
        learning_rate=LEARNING_RATE,
        schedule="constant",
        clip_norm=CLIP_NORM,
        matching=next(iter(RULES.values())),
        batch_norm_warmup=True,
        ema_decay=ema_decay,
    )
    before = [array(v) for v in model.trainable_variables]
    logs = model.train_on_batch(images, truth, return_dict=True)
    moved = [array(v) - old for v, old in zip(model.trainable_variables, before)]
    logs = {name: float(value) for name, value in logs.items()}
    return logs, norm(before), norm(moved)


def array(tensor):
    return np.asarray(keras.ops.convert_to_numpy(tensor))


def norm(arrays):
    """The norm of all numbers in a list of arrays."""
    return float(np.sqrt(sum((a.astype("float64") ** 2).sum() for a in arrays)))


def draw(path, model, images, truth, class_names):
    """Ground truth, the anchors of one place, and what each rule matches."""
    from matplotlib.figure import Figure

    image = np.clip(np.asarray(images[0]), 0, 255).astype("uint8")
    boxes, labels = np.asarray(truth["boxes"][0]), np.asarray(truth["labels"][0])
    boxes, labels = boxes[labels >= 0], labels[labels >= 0]
    figure = Figure(figsize=(10, 8.4), layout="constrained")
    axes = figure.subplots(2, 2).ravel()
    title = f"Ground truth: {len(boxes)} boxes"
    drawn = [(title, boxes, labels)]
    drawn.append(anchors_of_a_place(model.config, model.anchors, boxes, labels))
    for name, rule in RULES.items():
        classes, _ = matched(rule, model, truth)
        positive = classes >= 0
        title = f"{name}: {positive.sum()} anchors"
        drawn.append((title, model.anchors[positive], classes[positive]))
    for axis, (title, rows, classes) in zip(axes, drawn):
        axis.imshow(image)
        axis.set(title=title, xticks=[], yticks=[])
        for row, label in zip(rows, classes):
            add_box(axis, row, label)
        axis.set(xlim=(0, image.shape[1]), ylim=(image.shape[0], 0))
    handles = [
        add_box(axes[0], (0, 0, 0, 0), label, name)
        for label, name in enumerate(class_names)
    ]
    axes[0].legend(handles=handles, loc="lower left", fontsize=9)
    figure.savefig(path, dpi=100, pil_kwargs={"quality": 85, "optimize": True})


def anchors_of_a_place(config, anchors, boxes, labels):
    """Title, and the anchors of each level around the middle of the largest box."""
    largest = boxes[np.argmax((boxes[:, 2:] - boxes[:, :2]).prod(axis=1))]
    middle = (largest[:2] + largest[2:]) / 2
    levels = level_of_anchors(config)
    centers = (anchors[:, :2] + anchors[:, 2:]) / 2
    away = ((centers - middle) ** 2).sum(axis=1)
    kept = []
    for level in sorted(set(levels.tolist()))[:3]:  # above, they leave the image
        nearest = np.flatnonzero(levels == level)
        kept.append(nearest[np.argsort(away[nearest])[: config.num_anchors]])
    colors = np.repeat(np.arange(3), config.num_anchors)
    title = "Anchors of one place: level 3 (red), 4 (blue), 5 (green)"
    return title, anchors[np.concatenate(kept)], colors


def add_box(axis, box, label, name=None):
    from matplotlib.patches import Rectangle

    y_min, x_min, y_max, x_max = box
    color = np.array(ek.visualize.class_color(label)) / 255
    patch = Rectangle(
        (x_min, y_min),
        x_max - x_min,
        y_max - y_min,
        fill=False,
        edgecolor=color,
        linewidth=1.3,
        label=name,
    )
    return axis.add_patch(patch)


def report():
    """Prints each number, and returns model, images and ground truth for a drawing."""
    train = dataset()
    model = new_model(train)
    images, truth = batch_of_one(model, train)
    config = model.config
    print(f"image: {train.records[IMAGE].image_id}, {train.records[IMAGE].image_size}")
    print(f"image_size={config.image_size}, anchor_scale={config.anchor_scale}")
    print(f"aspect_ratios={config.aspect_ratios}, anchors={len(model.anchors)}")
    for stage, found in shapes(model, images):
        print(f"{stage}: {', '.join(map(str, found))}")
    for box, label in zip(
        np.asarray(truth["boxes"][0]), np.asarray(truth["labels"][0])
    ):
        print(f"box {box.round(1).tolist()} {train.class_names[label]}")
    for name, count, of_level, of_class in matching_numbers(model, truth):
        print(f"{name}: {count} positive; by level {of_level}; by class {of_class}")
    outputs, *targets, terms, gradients = forward_and_gradients(model, images, truth)
    show(loss_numbers(outputs, *targets, terms))
    numbers, largest = gradient_numbers(model.trainable_variables, gradients)
    show(numbers)
    print(f"largest gradient: {largest}")
    # The steps begin with the same weights: each has a model of its own.
    logs, of_weights, change = step_numbers(new_model(train), images, truth, None)
    show({**logs, "norm of the weights": of_weights, "norm of their change": change})
    *_, change = step_numbers(new_model(train), images, truth, 0.9998)
    show({"norm of the change of the averages": change})
    return model, images, truth, train.class_names


def show(numbers):
    for name, value in numbers.items():
        print(f"{name}: {value:.6g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="docs/images/training_step.jpg")
    options = parser.parse_args()
    drawn = report()
    draw(options.out, *drawn)
    print(options.out, pathlib.Path(options.out).stat().st_size)


if __name__ == "__main__":
    main()
