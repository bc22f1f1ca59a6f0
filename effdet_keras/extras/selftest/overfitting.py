"""The last stage: a few images, learned by heart, by a copy of the model."""

from __future__ import annotations

import time
from typing import Any

import keras
import numpy as np
from keras import ops

from effdet_keras.data.dataset import DetectionDataset, count_of
from effdet_keras.detect.evaluate import evaluate
from effdet_keras.errors import EffDetError
from effdet_keras.extras.selftest.stages import SelfTestStage
from effdet_keras.train.auto_recipe import BOX_LOSS
from effdet_keras.train.matching import ATSSMatching

LEARNED = 0.9  # AP on the images that were trained on
NUM_IMAGES = 4  # of the batch
STEPS = 400  # at most
_STEPS_BETWEEN = 25  # from one evaluation to the next
_LEARNING_RATE = 3e-3
_AT_PRIOR = 0.02  # scores that have not left their first value, 0.01
_NAME = "overfitting"


def check_overfitting(
    model: Any,
    dataset: DetectionDataset,
    *,
    steps: int = STEPS,
    learning_rate: float = _LEARNING_RATE,
    run_eagerly: bool = False,
    verbose: bool = True,
) -> SelfTestStage:
    """Trains a model on one batch until it knows it by heart, or `steps` are over.

    There is nothing to be learned for other images, and so nothing that makes it hard:
    the same images at every step, no augmentation, no averages, one learning rate.
    What is frozen stays frozen.
    """
    if not model.trainable_variables:
        return SelfTestStage(
            _NAME,
            0.0,
            LEARNED,
            "no weight of the model trains",
            cure="Everything is frozen: `model.unfreeze()`",
            has_error=True,
        )
    model.compile(
        keras.optimizers.Adam(learning_rate),
        loss=BOX_LOSS,
        matching=ATSSMatching(),
        weight_decay=None,
        ema_decay=None,
        batch_norm_warmup=True,
        freeze=None,
        run_eagerly=run_eagerly,
    )
    try:
        lessons = _Lessons(model, dataset, steps, verbose)
        lessons.run()
    except (EffDetError, FloatingPointError) as error:
        return SelfTestStage(
            _NAME, 0.0, LEARNED, f"training stopped: {error}", has_error=True
        )
    boxes = count_of(sum(len(r.labels) for r in dataset.records), "box", "boxes")
    return SelfTestStage(
        _NAME,
        lessons.numbers["AP"],
        LEARNED,
        f"{count_of(len(dataset), 'image')} with {boxes}, after {lessons.done} steps",
        cure=cure_of(lessons, steps),
    )


def choose_images(dataset: DetectionDataset, count: int = NUM_IMAGES) -> list[int]:
    """Chooses images to learn by heart: of all classes, with few boxes."""
    labels = [set(r.usable().labels[~r.usable().is_crowd]) for r in dataset.records]
    order = sorted(
        (place for place, found in enumerate(labels) if found),
        key=lambda place: len(dataset.records[place].labels),
    )
    chosen: list[int] = []
    known: set[int] = set()
    while order and len(chosen) < count:
        best = max(order, key=lambda place: len(labels[place] - known))
        order.remove(best)
        chosen.append(best)
        known |= labels[best]
    return sorted(chosen)


class _Lessons:
    """A training in parts, with an evaluation after each."""

    def __init__(self, model, dataset, steps, verbose):
        self.model, self.dataset = model, dataset
        self.steps, self.say = steps, print if verbose else lambda *_, **__: None
        self.done, self.losses = 0, []
        self.numbers = {"AP": 0.0, "AP50": 0.0}  # of the last evaluation
        batches = model.batches(dataset, len(dataset), training=False)
        self.images, truth = next(iter(batches))
        self.truth = {name: truth[name] for name in ("boxes", "labels")}

    def run(self):
        self._tell_the_time()
        while self.done < self.steps:
            self._train(min(_STEPS_BETWEEN, self.steps - self.done))
            self.numbers = evaluate(
                self.model, self.dataset, batch_size=len(self.dataset), verbose=False
            )
            self.say(
                f"  step {self.done}: loss {self.losses[-1]:.3f}, AP "
                f"{self.numbers['AP']:.3f}",
                flush=True,
            )
            if self.numbers["AP"] >= LEARNED:
                break

    @property
    def best_score(self):
        """The highest score of all detections now."""
        outputs = self.model.predict_on_batch(self.images)
        return float(np.max(ops.convert_to_numpy(outputs["scores"])))

    def _tell_the_time(self):
        self.say(
            f"Learning {count_of(len(self.dataset), 'image')} by heart, in at most "
            f"{self.steps} steps; compiling the first takes up to a minute ...",
            flush=True,
        )
        self._train(1)
        start = time.monotonic()
        self._train(1)
        seconds = time.monotonic() - start
        minutes = seconds * self.steps / 60
        self.say(
            f"A step takes {seconds:.2f} seconds: at most {minutes:.1f} minutes, "
            "often half of that.",
            flush=True,
        )

    def _train(self, steps):
        for _ in range(steps):
            logs = self.model.train_on_batch(self.images, self.truth, return_dict=True)
        self.done += steps
        self.losses.append(float(logs["loss"]))


def cure_of(lessons, steps):
    """What to do, from what a training of so many steps looked like."""
    numbers, losses = lessons.numbers, lessons.losses
    if numbers["AP"] >= LEARNED:
        return ""
    if losses[-1] > 0.8 * losses[0]:
        return (
            f"The loss has not fallen ({losses[0]:.3f} to {losses[-1]:.3f}): is too "
            "much frozen, or are the images all alike?"
        )
    if lessons.best_score < _AT_PRIOR:
        return (
            "No score has left its first value, 0.01: the class head does not learn, "
            "or the statistics of batch norm do not follow"
        )
    if numbers["AP50"] >= LEARNED:
        return (
            f"AP50 is {numbers['AP50']:.3f}: all is found, and boxes are not exact "
            f"yet. More steps than {steps} may do (`--steps`); else see the stages "
            "above"
        )
    return (
        f"The loss fell ({losses[0]:.3f} to {losses[-1]:.3f}) and AP50 is "
        f"{numbers['AP50']:.3f}: more steps than {steps} (`--steps`) may do; else look "
        "for objects that are too small (letterbox, above), and for boxes of one place "
        "with two classes"
    )
