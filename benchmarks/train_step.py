"""How long does a training step of D0 take, at 512 x 512, for 8 images with 8 objects?

Both sides do the same: forward, matching, losses, backward, gradient clipping, SGD with
momentum, moving averages of the weights.
"""

import functools

import alternate
import numpy as np

SIZE = 512
NUM_BOXES = 8


def _batch_and_repeats(quick):
    return (1, 1) if quick else (8, 4)


def ours(quick):
    import tensorflow as tf

    import effdet_keras as ek

    batch_size, repeats = _batch_and_repeats(quick)
    model = ek.EfficientDet.from_preset("efficientdet-d0")
    model.compile()
    images, boxes, labels = _batch(batch_size)
    truth = {"boxes": boxes, "labels": labels}
    batch = tf.data.Dataset.from_tensors((images, truth)).repeat()
    model.make_train_function()
    # `fit` calls this; `train_on_batch` would swap the averages in and out each time.
    step = functools.partial(model.train_function, iter(batch))
    return {f"batch {batch_size}": alternate.repeat(step, repeats)}


def peer(quick, *, channels_last=False, compiled=False):
    import torch
    from peer import network
    from timm.utils import ModelEmaV2

    batch_size, repeats = _batch_and_repeats(quick)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    bench = network("train").train().to(memory_format=layout)
    averages = ModelEmaV2(bench, decay=0.9998)
    optimizer = torch.optim.SGD(
        bench.parameters(), lr=0.01, momentum=0.9, weight_decay=4e-5
    )
    images, boxes, labels = _batch(batch_size)
    images = torch.from_numpy(images.transpose(0, 3, 1, 2) / 64).contiguous()
    images = images.to(memory_format=layout)
    truth = {"bbox": torch.from_numpy(boxes), "cls": torch.from_numpy(labels + 1.0)}
    forward = torch.compile(bench) if compiled else bench

    def step():
        optimizer.zero_grad()
        forward(images, truth)["loss"].backward()
        torch.nn.utils.clip_grad_norm_(bench.parameters(), 10.0)
        optimizer.step()
        averages.update(bench)

    return {f"batch {batch_size}": alternate.repeat(step, repeats)}


def _batch(batch_size):
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 255, (batch_size, SIZE, SIZE, 3)).astype("float32")
    low = rng.uniform(0, SIZE / 2, (batch_size, NUM_BOXES, 2))
    sides = rng.uniform(16, SIZE / 2, (batch_size, NUM_BOXES, 2))
    boxes = np.concatenate([low, low + sides], axis=-1).astype("float32")
    labels = rng.integers(0, 90, (batch_size, NUM_BOXES)).astype("int32")
    return images, boxes, labels


if __name__ == "__main__":
    alternate.main(
        __doc__,
        {
            "ours": ours,
            "peer": peer,
            "peer_channels_last": functools.partial(peer, channels_last=True),
            "peer_spinning": functools.partial(peer, channels_last=True),
            "peer_compiled": functools.partial(peer, channels_last=True, compiled=True),
        },
        rounds=2,
    )
