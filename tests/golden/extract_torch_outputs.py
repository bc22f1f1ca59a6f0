"""Runs models of PyTorch effdet, with the weights of `torch_weights.py`.

Run with the packages of `PROVENANCE-torch.md`; it writes `torch_effdet_outputs.npz`
beside itself.
"""

import pathlib

import numpy as np
import torch_weights

MODELS = {
    "effdet-d0": "efficientdet_d0",
    "effdet-lite0": "efficientdet_lite0",
    "efficientdet-q0": "efficientdet_q0",
    "efficientdet-q1": "efficientdet_q1",
    "efficientdetv2-dt": "efficientdetv2_dt",
    "efficientdetv2-ds": "efficientdetv2_ds",
}
IMAGE_SIZE = (96, 160)  # maps of 12 x 20 to 1 x 2: even and odd sides
NUM_CLASSES = 2


def outputs(name):
    import effdet  # here, because tests are collected by importing
    import torch

    config = effdet.get_efficientdet_config(name)
    config.image_size, config.num_classes = IMAGE_SIZE, NUM_CLASSES
    model = effdet.EfficientDet(config, pretrained_backbone=False).eval()
    state = {
        key: tensor
        if key.endswith("num_batches_tracked")
        else torch.from_numpy(torch_weights.value(key, tuple(tensor.shape)))
        for key, tensor in model.state_dict().items()
    }
    model.load_state_dict(state)
    image = torch_weights.image((1, *IMAGE_SIZE, 3)).transpose(0, 3, 1, 2)
    with torch.no_grad():
        heads = model(torch.from_numpy(np.ascontiguousarray(image)))
    for head, levels in zip(("cls", "box"), heads):
        for level, map_ in enumerate(levels, config.min_level):
            values = map_.numpy().transpose(0, 2, 3, 1)
            yield f"{head}/p{level}", values[:, ::2, ::2] if level == 3 else values


def main():
    arrays = {
        f"{ours}/{key}": values
        for ours, theirs in MODELS.items()
        for key, values in outputs(theirs)
    }
    path = pathlib.Path(__file__).with_name("torch_effdet_outputs.npz")
    np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    main()
