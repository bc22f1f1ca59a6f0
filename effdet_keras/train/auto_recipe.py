"""Chooses a recipe for the data, for `compile(recipe="auto")`, with reasons.

The measurements behind each choice are in benchmarks/RESULTS.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from effdet_keras.augment.augmentation import Augmentation, RandomApply
from effdet_keras.augment.mixing import Mosaic
from effdet_keras.data.default_jitter import scale_jitter
from effdet_keras.network.backbone import feature_block_indices
from effdet_keras.train.losses import DetectionLoss
from effdet_keras.train.matching import ATSSMatching
from effdet_keras.train.recipe import REFERENCE

STEPS = 1_400  # the length of a training if the number of epochs is not given
LONG = 100_000  # steps: a training of at least this length uses the reference recipe

# A number of epochs, and the fraction of mosaics in a training of that many epochs.
_MOSAIC_OF_FEW = (20, 0.0)
_MOSAIC_OF_MANY = (60, 0.5)

BOX_LOSS = DetectionLoss(iou_loss_type="ciou", iou_loss_weight=4.0)

SHORT = 500  # steps: a shorter training freezes a pretrained backbone
_FULL_RATE = 3_000  # steps: longer trainings have a lower learning rate
# The kinds of loaded weights, see `EfficientDet.pretrained`.
_BACKBONE, _DETECTOR = "backbone", "detector"
_OTHER_CLASSES = "detector of other classes"
# A pretrained backbone that trains has a lower learning rate than new layers. Its first
# blocks and its batch norms' statistics are frozen. Otherwise it forgets what it knew.
_SLOW_BACKBONE = {"^efficientnet": 0.2}


class TrainingFacts(NamedTuple):
    """Facts about the data and the model at the beginning of a training."""

    num_images: int
    batch_size: int
    steps: int
    pretrained: str | None = None  # see `EfficientDet.pretrained`
    # Those of "scale_jitter", "augment", "batch_size" and "epochs" that `fit` chose.
    auto_fields: tuple[str, ...] = ()
    backbone: str = "efficientnet-b0"
    backbone_trains: bool | None = None  # None: the recipe decides
    epochs: int | None = None  # the epochs to train; None if not known
    trains_new_classes: bool = False  # only new classes: see `train/new_classes.py`


class AutoChoice(NamedTuple):
    """The value that was chosen for a field of the recipe, and the reason."""

    field: str
    value: object
    reason: str


_ATSS = AutoChoice("matching", ATSSMatching(), "ATSS: an IoU threshold per object")
_IOU_LOSS = AutoChoice("loss", BOX_LOSS, "IoU loss on boxes, the measure of AP")


def choose(facts: TrainingFacts) -> list[AutoChoice]:
    """Returns the choices for a training.

    A training of at least `LONG` steps has no choices: it uses the reference recipe.
    All shorter trainings use one recipe. Its learning rate depends on the number of
    steps, the batch size and the loaded weights.
    """
    if facts.steps >= LONG:
        return []
    trains = facts.backbone_trains
    if trains is None:
        trains = facts.steps >= SHORT
    choices = _optimization(facts, trains)
    choices.append(_ATSS)
    if facts.trains_new_classes:
        return choices  # the boxes do not train
    choices.append(_IOU_LOSS)
    if facts.pretrained in (_BACKBONE, _OTHER_CLASSES):
        choices += _pretrained_backbone(facts, trains)
    return choices


def _optimization(facts, backbone_trains):
    """Returns the choices of optimizer, schedule, batch norm, averages and clipping."""
    rate, start = _LEARNING_RATE[facts.pretrained], _STARTS[facts.pretrained]
    if facts.trains_new_classes:
        rate, start = _RATE_OF_NEW_CLASSES, "only the outputs of new classes train"
    elif facts.pretrained == _OTHER_CLASSES and not backbone_trains:
        rate = _RATE_OF_OTHER_CLASSES
    rate *= math.sqrt(min(facts.batch_size, 16) / 8)
    rate *= math.sqrt(min(_FULL_RATE / facts.steps, 1.0))
    warmup = max(1, min(facts.steps // 10, 200))
    return [
        AutoChoice("optimizer", "muon", "Muon: higher AP on classes that look alike"),
        AutoChoice("learning_rate", float(f"{rate:.2g}"), start),
        AutoChoice(
            "schedule",
            {"name": "cosine", "warmup_steps": warmup},
            f"to zero after {facts.steps} steps",
        ),
        AutoChoice(
            "batch_norm_warmup",
            True,
            "batch-norm momentum is ramped up during warm-up",
        ),
        AutoChoice(
            "ema_decay",
            REFERENCE["ema_decay"],
            "EMA of the weights, with a decay that ramps up",
        ),
        AutoChoice(
            "clip_norm",
            REFERENCE["clip_norm"],
            "gradients of small batches are noisy: each is clipped, then all",
        ),
    ]


def _pretrained_backbone(facts, trains):
    """Returns the choices that keep a pretrained backbone from forgetting."""
    may_freeze = facts.backbone_trains is None
    if not trains:
        reason = "the backbone is pretrained, and the training short"
        return [AutoChoice("freeze", "backbone", reason)] if may_freeze else []
    choices = [
        AutoChoice(
            "learning_rate_multipliers",
            _SLOW_BACKBONE,
            "a lower learning rate for the pretrained backbone",
        )
    ]
    if may_freeze:
        first_blocks = AutoChoice(
            "freeze",
            _first_blocks(facts.backbone),
            "first blocks and batch norm are frozen: low-level features transfer",
        )
        choices.append(first_blocks)
    return choices


def _first_blocks(backbone):
    """Returns a regular expression for weights of a backbone to freeze.

    They are those of its stem, its blocks up to level 3, and all of its batch norms.
    """
    last, *_ = feature_block_indices(backbone, min_level=3)
    blocks = "|".join(map(str, range(last + 1)))
    return rf"efficientnet.*(/stem/|/blocks_({blocks})/|batch_norm)"


_LEARNING_RATE = {None: 4e-3, _BACKBONE: 5e-3, _OTHER_CLASSES: 5e-3, _DETECTOR: 1e-3}
_RATE_OF_OTHER_CLASSES = 1e-2  # for a detector whose backbone does not train
_RATE_OF_NEW_CLASSES = 1e-2  # for the one layer that trains
_STARTS = {
    None: "all weights are new",
    _BACKBONE: "BiFPN and heads are new",
    _OTHER_CLASSES: "the classes are new, and the heads learn with them",
    _DETECTOR: "the detector was trained before",
}


def augmentation(num_images: int, batch_size: int, epochs: int) -> Augmentation | None:
    """Returns mosaics for a training that sees each image often, or None.

    They keep the model from memorizing the images. There are none up to 20 passes over
    the data, and none in a training of at least `LONG` steps. From 20 to 60 passes
    their fraction grows linearly from 0 to 0.5, where it stays.

    Args:
        num_images: int, the number of training images.
        batch_size: int.
        epochs: int, the number of passes over the data.
    """
    (few, none), (many, most) = _MOSAIC_OF_FEW, _MOSAIC_OF_MANY
    if epochs <= few or epochs * _steps_of_epoch(num_images, batch_size) >= LONG:
        return None
    share = none + (most - none) * (min(max(epochs, few), many) - few) / (many - few)
    return RandomApply(Mosaic(), round(share, 2))


def num_epochs(
    num_images: int, batch_size: int, steps_per_epoch: int | None = None
) -> int:
    """Returns the number of epochs for a training whose length is not given."""
    steps = steps_per_epoch or _steps_of_epoch(num_images, batch_size)
    return max(1, math.ceil(STEPS / steps))


def passes_over_data(
    num_images: int, batch_size: int, *, epochs: int, steps_per_epoch: int | None
) -> int:
    """Returns how often a training sees each image.

    It is `epochs`, unless `steps_per_epoch` sets the length of an epoch.
    """
    if steps_per_epoch is None:
        return epochs
    return max(1, epochs * steps_per_epoch // _steps_of_epoch(num_images, batch_size))


def _steps_of_epoch(num_images, batch_size):
    return max(num_images // batch_size, 1)


def describe(
    choices: list[AutoChoice], facts: TrainingFacts, given_fields: list[str]
) -> str:
    """Returns the choices as a block of text for users."""
    title = (
        f'Recipe "auto" for {facts.num_images:,} images, {facts.steps:,} steps of '
        f"{facts.batch_size}"
    )
    if facts.steps >= LONG:
        return f'{title}: the settings of the recipe "reference".'
    compile_rows = [(f"{c.field}={c.value!r}", c.reason) for c in choices]
    images = facts.num_images, facts.batch_size
    augment = augmentation(*images, facts.steps // _steps_of_epoch(*images))
    auto_fields = {  # arguments that `fit` chooses, because it makes the batches
        "scale_jitter": (
            scale_jitter(facts.num_images),
            "the scale of objects varies little; argument of `batches`",
        ),
        "augment": (augment, "each image is seen many times; argument of `batches`"),
        "batch_size": (
            facts.batch_size,
            "fits into the memory of most devices; argument of `fit`",
        ),
        "epochs": (
            facts.epochs or num_epochs(facts.num_images, facts.batch_size),
            f"{STEPS:,} steps, without early stopping; argument of `fit`",
        ),
    }
    fit_rows = [
        (f"{name}={value}", reason)
        for name, (value, reason) in auto_fields.items()
        if name in facts.auto_fields and value is not None
    ]
    width = max((len(argument) for argument, _ in compile_rows + fit_rows), default=0)
    lines = [f"{title}. To change a setting, pass it as an argument of `compile`:"]
    lines += [f"  {argument:<{width}}  {reason}" for argument, reason in compile_rows]
    if fit_rows:
        lines.append("and these as arguments of `fit` and `batches`:")
        lines += [f"  {argument:<{width}}  {reason}" for argument, reason in fit_rows]
    if given_fields:
        lines.append(f"  given by you: {', '.join(given_fields)}")
    return "\n".join(lines)
