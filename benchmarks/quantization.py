"""What does int8 cost: AP of float, of int8 after training, and of trained int8.

    python benchmarks/quantization.py                          # Lite0, from ImageNet
    python benchmarks/quantization.py --model efficientdet-d0 --weights scratch
    python benchmarks/quantization.py --archive runs/cats

Trains a detector on the blood cells (or opens one that was trained on them). Writes it
as a float file, and as an int8 file with 100 calibration images. Then continues the
training with `quantize_aware`, and writes int8 from that. Each file is evaluated on
`test`, on which no model was trained. (But the default recipe was chosen by it:
docs/scorecard.md.) Prints a JSON line for each file, with the AP that it lost compared
with the float file, and the interval that contains 95 % of the draws of the paired
bootstrap over images. With `--trains-float`, the training of the float model is also
continued for as many steps, which shows the effect of the steps alone. Choose settings
with `--split val`.
"""

import argparse
import json
import pathlib
import tempfile
import time

import keras

import effdet_keras as ek
from effdet_keras.detect.evaluate import image_results
from effdet_keras.extras.analysis.compare import compare_detectors
from effdet_keras.train.compile_config import refining_config

BLOOD_CELLS = pathlib.Path(ek.data.__file__).parent / "blood_cells"


def main():
    options = read_options()
    for size in options.sizes or [options.image_size]:
        options.image_size = size
        measure(options)


def measure(options):
    """Trains and evaluates at one input size."""
    train = ek.data.load(options.data, "train")
    judges = {
        split: ek.data.load(options.data, split, class_names=train.class_names)
        for split in options.split
    }
    keras.utils.set_random_seed(options.seed)
    folder = pathlib.Path(options.keep or tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    archive = options.archive
    if archive is None:
        archive = folder / named("float", options)
        float_model(train, options).save(archive)
    model = ek.EfficientDet.from_archive(archive)
    judge(model, "float", folder, judges, options, precision="float32")
    if not options.only_trained:
        title, calibrated = "int8 after training", {"calibration": train}
        judge(model, title, folder, judges, options, precision="int8", **calibrated)
    for rounds in (False, True) if options.trains_float else (True,):
        model = ek.EfficientDet.from_archive(archive)
        model.compile_from_config(refining_config(model))
        if rounds:
            model.quantize_aware(delay=options.delay)
        start = time.process_time()
        model.fit(train, batch_size=options.batch_size, epochs=options.more, verbose=2)
        minutes = round((time.process_time() - start) / 60, 2)
        title = "int8 trained for" if rounds else "float, trained on"
        export = {"precision": "int8" if rounds else "float32", "cpu_minutes": minutes}
        judge(model, title, folder, judges, options, **export)
        if rounds:
            model.save(folder / named("int8", options))
            title = "int8 trained for, int8 scores"  # as an Edge TPU computes them
            export = {"precision": "int8", "int8_scores": True}
            judge(model, title, folder, judges, options, **export)


def named(kind, options):
    """Returns the name of a model's file: one for each size and seed."""
    size = (
        "auto" if options.image_size is None else "x".join(map(str, options.image_size))
    )
    return f"{kind}_{size}_{options.seed}.keras"


def float_model(train, options):
    model = ek.EfficientDet.from_preset(
        options.model,
        None if options.weights == "scratch" else options.weights,
        dataset=train,
        image_size=options.image_size or "auto",
        anchors="auto",
        verbose=0,
    )
    model.compile()
    model.fit(train, batch_size=options.batch_size, epochs=options.epochs, verbose=2)
    return model


def judge(model, title, folder, judges, options, *, cpu_minutes=None, **export):
    """Prints a line for each split on which the file of a model is evaluated."""
    path = folder / "judged.tflite"
    report = model.export(path, verbose=0, **export)
    for split, dataset in judges.items():
        found = image_results(ek.Predictor.load(path), dataset, verbose=False)
        if title == "float":
            options.float_results[split] = found
        numbers = compare_detectors(options.float_results[split], found)
        ap, ap50 = numbers["AP"], numbers["AP50"]
        line = {
            "model": options.model,
            "case": title,
            "image_size": model.config.image_size,
            "split": split,
            "seed": options.seed,
            "AP": round(ap.second, 4),
            "AP50": round(ap50.second, 4),
            "lost": round(ap.first - ap.second, 4),
            "lost_interval": [round(-ap.high, 4), round(-ap.low, 4)],
            "megabytes": round(report.size_bytes / 1e6, 2),
            "cpu_minutes": cpu_minutes,
        }
        print(json.dumps(line), flush=True)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default=BLOOD_CELLS)
    parser.add_argument("--model", default="efficientdet-lite0")
    parser.add_argument("--weights", default="imagenet")
    parser.add_argument("--archive", help="a trained model, instead of a training")
    parser.add_argument("--image-size", type=int, nargs=2)
    parser.add_argument(
        "--sizes", type=int, nargs="+", help="of square inputs, in turn"
    )
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=12, help="of the float model")
    parser.add_argument("--more", type=int, default=6, help="epochs of QAT")
    parser.add_argument("--delay", type=int, default=0)
    parser.add_argument("--split", nargs="+", default=["test"], help="what judges")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trains-float", action="store_true")
    parser.add_argument(
        "--only-trained", action="store_true", help="no calibrated file"
    )
    parser.add_argument("--keep", help="folder for the trained models")
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    options = parser.parse_args()
    if options.quick:
        options.weights, options.image_size = "scratch", (64, 64)
        options.epochs, options.more = 3, 1  # the first epoch alone would round badly
    options.float_results = {}  # by split
    if options.image_size is not None:
        options.image_size = tuple(options.image_size)
    options.sizes = [(size, size) for size in options.sizes or ()]
    return options


if __name__ == "__main__":
    main()
