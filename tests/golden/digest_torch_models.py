"""Digests the state dicts of PyTorch effdet's `tf_` models.

Run with the packages of `PROVENANCE-torch.md`; it writes
`torch_effdet_models.json` beside itself.
"""

import hashlib
import json
import pathlib

SIZES = (
    *("d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d7x"),
    *("lite0", "lite1", "lite2", "lite3", "lite3x", "lite4"),
)


def digest(size):
    import effdet  # here, because tests are collected by importing
    import torch

    config = effdet.get_efficientdet_config(f"tf_efficientdet_{size}")
    with torch.device("meta"):  # shapes without the memory
        model = effdet.EfficientDet(config, pretrained_backbone=False)
    lines = sorted(
        f"{name} {tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
        for name, value in model.state_dict().items()
    )
    text = "\n".join(lines)
    return {"entries": len(lines), "sha256": hashlib.sha256(text.encode()).hexdigest()}


def main():
    digests = {f"efficientdet-{size}": digest(size) for size in SIZES}
    path = pathlib.Path(__file__).with_name("torch_effdet_models.json")
    path.write_text(json.dumps(digests, indent=1) + "\n")


if __name__ == "__main__":
    main()
