"""Digests the state dicts of PyTorch effdet's models, and notes their settings.

Run with the packages of `PROVENANCE-torch.md`; it writes `torch_effdet_models.json` and
`torch_effdet_settings.json` beside itself.
"""

import hashlib
import json
import pathlib

SIZES = (
    *("d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d7x"),
    *("lite0", "lite1", "lite2", "lite3", "lite3x", "lite4"),
)
# Our names of the models that are effdet's own.
OWN = {
    **{f"effdet-{size}": f"efficientdet_{size}" for size in (*SIZES[:6], "lite0")},
    **{f"efficientdet-q{i}": f"efficientdet_q{i}" for i in range(3)},
    **{f"efficientdetv2-d{end}": f"efficientdetv2_d{end}" for end in "ts"},
}


def load(name):
    import effdet  # here, because tests are collected by importing
    import torch

    config = effdet.get_efficientdet_config(name)
    with torch.device("meta"):  # shapes without the memory
        return effdet.EfficientDet(config, pretrained_backbone=False)


def digest(model):
    lines = sorted(
        f"{name} {tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
        for name, value in model.state_dict().items()
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


def main():
    models = {f"efficientdet-{size}": load(f"tf_efficientdet_{size}") for size in SIZES}
    own = {ours: load(theirs) for ours, theirs in OWN.items()}
    digests = {name: digest(model) for name, model in {**models, **own}.items()}
    write("torch_effdet_models.json", digests)
    write(
        "torch_effdet_settings.json", {n: settings(model) for n, model in own.items()}
    )


if __name__ == "__main__":
    main()
