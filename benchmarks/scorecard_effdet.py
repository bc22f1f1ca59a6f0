"""The peer's side of `scorecard.py`: trains PyTorch effdet on data in COCO's format.

Runs in a Python that has effdet (README.md), and writes its detections beside the data.
Transforms, collating, network, losses and post-processing are effdet's own. The
optimizer trains all weights. It is AdamW, as in most published fine-tunings of effdet,
or momentum, as in effdet's own script, with a warm-up and a cosine schedule.
"""

import argparse
import functools
import json
import math
import pathlib

import peer  # noqa: F401 (provides a stand-in for torchvision to the imports below)

# isort: split
import effdet.data.dataset
import effdet.data.loader
import effdet.data.parsers
import effdet.data.transforms
import torch

_OTHERS = ("_conv_head", "_bn1.", "_fc")  # weights of the classifier, not the backbone
EVALUATION_BATCH = 16
OPTIMIZERS = {
    "AdamW": torch.optim.AdamW,
    "momentum": functools.partial(torch.optim.SGD, momentum=0.9, nesterov=True),
}


def main():
    options = read_options()
    torch.manual_seed(options.seed)
    train = read(options.folder, "train", options.image_size, training=True)
    judge = read(options.folder, "judge", options.image_size, training=False)
    bench = effdet.create_model(
        options.model,
        bench_task="train",
        bench_labeler=True,
        num_classes=options.num_classes,
        image_size=tuple(options.image_size),
        pretrained=False,
        pretrained_backbone=False,
    )
    if options.backbone is not None:
        load_backbone(bench.model.backbone, options.backbone)
    steps = fit(bench, train, options)
    found = detect(effdet.DetBenchPredict(bench.model), judge)
    content = {"steps": steps, "detections": found}
    (options.folder / "found.json").write_text(json.dumps(content))


def read(folder, split, image_size, *, training):
    """Returns effdet's dataset, with its own transforms."""
    config = effdet.data.parsers.CocoParserCfg(
        ann_filename=str(folder / f"{split}.json")
    )
    transforms = effdet.data.transforms
    make = (
        transforms.transforms_coco_train
        if training
        else transforms.transforms_coco_eval
    )
    return effdet.data.dataset.DetectionDatset(
        data_dir=folder / split,
        parser=effdet.data.parsers.create_parser("coco", cfg=config),
        # With a loader for CUDA, the transforms are the same.
        transform=make(tuple(image_size), use_prefetcher=True),
    )


def load_backbone(backbone, path):
    """Loads EfficientNet-PyTorch's weights, which have the order of timm's."""
    arrays = torch.load(path, map_location="cpu", weights_only=True)
    names = [name for name in arrays if not name.startswith(_OTHERS)]
    own = backbone.state_dict()
    names, own_names = without_counts(names), without_counts(own)
    mapped = dict(zip(own_names, (arrays[name] for name in names), strict=True))
    for name, array in mapped.items():
        if array.shape != own[name].shape:
            raise ValueError(f"{name}: {tuple(array.shape)}, {tuple(own[name].shape)}")
    backbone.load_state_dict(mapped, strict=False)


def without_counts(names):
    return [name for name in names if not name.endswith("num_batches_tracked")]


def fit(bench, dataset, options):
    """Trains a model; returns the number of steps."""
    loader = torch.utils.data.DataLoader(
        dataset,
        options.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=effdet.data.loader.DetectionFastCollate(),
    )
    optimizer = OPTIMIZERS[options.optimizer](bench.parameters(), lr=options.rate)
    total = options.epochs * len(loader)
    warmup = max(total // 20, 1)

    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    bench.train()
    for _ in range(options.epochs):
        for images, target in loader:
            optimizer.zero_grad()
            bench(normalized(images), target)["loss"].backward()
            torch.nn.utils.clip_grad_norm_(bench.parameters(), 10.0)
            optimizer.step()
            schedule.step()
    return total


@torch.no_grad()
def detect(bench, dataset):
    """Returns detections as `[image id, label, score, [y1, x1, y2, x2]]`."""
    loader = torch.utils.data.DataLoader(
        dataset, EVALUATION_BATCH, collate_fn=effdet.data.loader.DetectionFastCollate()
    )
    bench.eval()
    found = []
    for images, target in loader:
        info = {"img_scale": target["img_scale"], "img_size": target["img_size"]}
        rows = bench(normalized(images), info)
        for index, rows_of_image in zip(target["img_idx"].tolist(), rows.tolist()):
            image_id = dataset.parser.img_ids[index]
            for x1, y1, x2, y2, score, category_id in rows_of_image:
                if score > 0:
                    box = [y1, x1, y2, x2]
                    found.append([image_id, int(category_id) - 1, score, box])
    return found


def normalized(images):
    """Normalizes pixels as in the training of Lite0's backbone."""
    return (images.float() - 127.0) / 128.0


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("folder", type=pathlib.Path, help="train.json, train/, judge.json, judge/")
    add("--model", default="tf_efficientdet_lite0")
    add("--num-classes", type=int, required=True)
    add("--image-size", type=int, nargs=2, required=True)
    add("--backbone", help="a .pth file of EfficientNet-PyTorch")
    add("--optimizer", choices=OPTIMIZERS, required=True)
    add("--rate", type=float, required=True)
    add("--epochs", type=int, required=True)
    add("--batch-size", type=int, required=True)
    add("--seed", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
