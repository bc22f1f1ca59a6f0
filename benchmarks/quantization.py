"""What int8 costs: AP of float, of int8 after training, and of int8 trained for.

    python benchmarks/quantization.py                          # Lite0, from ImageNet
    python benchmarks/quantization.py --model efficientdet-d0 --weights scratch
    python benchmarks/quantization.py --archive runs/cats

Trains a detector on the blood cells (or opens one that was trained on them), writes it
as a float file and as an int8 file with 100 calibration images, goes on with
`quantize_aware`, and writes int8 from that. Each file is judged on `test`, which no
model was trained on. (The default recipe was chosen by it: docs/scorecard.md.) Prints a
JSON line for each, with the AP that the file has less than the float file and than the
live model, and the 95 % intervals of the paired bootstrap over images. With
`--trains-float` the float model is also trained on for as many steps, which shows what
the steps alone are worth. Choose settings with `--split val`.
"""

import argparse
import json
import pathlib
import tempfile
import time

import keras

import effdet_keras as ek
from effdet_keras.detect.evaluate import image_results
from effdet_keras.export.runtime import open_runtime
from effdet_keras.extras.analysis.compare import compare_detectors
from effdet_keras.train.compile_config import refining_config

BLOOD_CELLS = pathlib.Path(ek.data.__file__).parent / "blood_cells"


def main():
    options = read_options()
    train = ek.data.load(options.data, "train")
    judges = {
        split: ek.data.load(options.data, split, class_names=train.class_names)
        for split in options.split
    }
    keras.utils.set_random_seed(options.seed)
    folder = pathlib.Path(tempfile.mkdtemp())
    archive = options.archive
    if archive is None:
        archive = options.keep_float or folder / "float.keras"
        float_model(train, options).save(archive)
    model = ek.EfficientDet.from_archive(archive)
    judge(model, "float", folder, judges, options, precision="float32")
    judge(
        model,
        "int8 after training",
        folder,
        judges,
        options,
        precision="int8",
        calibration=train,
    )
    for rounds in (False, True) if options.trains_float else (True,):
        model = ek.EfficientDet.from_archive(archive)
        model.compile_from_config(refining_config(model))
        if rounds:
            model.quantize_aware(
                delay=options.delay,
                batch_norm_steps=options.batch_norm_steps,
                range_steps=options.range_steps,
            )
        start = time.process_time()
        model.fit(train, batch_size=options.batch_size, epochs=options.more, verbose=2)
        minutes = round((time.process_time() - start) / 60, 2)
        title = "int8 trained for" if rounds else "float, trained on"
        precision = "int8" if rounds else "float32"
        judge(
            model,
            title,
            folder,
            judges,
            options,
            precision=precision,
            cpu_minutes=minutes,
        )
        if rounds:
            title = "int8 trained for, int8 scores"  # as an Edge TPU computes
            edge_tpu = {"precision": "int8", "int8_scores": True}
            judge(model, title, folder, judges, options, **edge_tpu)
            if options.keep is not None:
                model.save(options.keep)


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
    """Prints a line for each split that judges the file of a model."""
    path = folder / "judged.tflite"
    report = model.export(path, verbose=0, **export)
    file, own = ek.Predictor.load(path), model.postprocess
    for split, dataset in judges.items():
        # The file suppresses hard: with its postprocess the rounding alone differs.
        model.postprocess = open_runtime(path).description.postprocess
        live = image_results(model, dataset, verbose=False)
        model.postprocess = own
        found = image_results(file, dataset, verbose=False)
        if title == "float":
            options.float_results[split] = found
        line = {
            "model": options.model,
            "case": title,
            "image_size": model.config.image_size,
            "split": split,
            "seed": options.seed,
            **compared(options.float_results[split], found, "float"),
            **compared(live, found, "live"),
            "megabytes": round(report.size_bytes / 1e6, 2),
            "cpu_minutes": cpu_minutes,
        }
        print(json.dumps(line), flush=True)


def compared(first, second, name):
    """AP of the second, and how far it is below the first's, with its interval."""
    found = compare_detectors(first, second)["AP"]
    return {
        "AP": round(found.second, 4),
        f"below_{name}": round(found.first - found.second, 4),
        f"below_{name}_interval": [round(-found.high, 4), round(-found.low, 4)],
    }


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default=BLOOD_CELLS)
    parser.add_argument("--model", default="efficientdet-lite0")
    parser.add_argument("--weights", default="imagenet")
    parser.add_argument("--archive", help="a trained model, instead of a training")
    parser.add_argument("--image-size", type=int, nargs=2)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=12, help="of the float model")
    parser.add_argument("--more", type=int, default=6, help="epochs of QAT")
    parser.add_argument("--delay", type=int, default=0)
    parser.add_argument("--batch-norm-steps", type=int, default=0)
    parser.add_argument("--range-steps", type=int)
    parser.add_argument("--split", nargs="+", default=["test"], help="what judges")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trains-float", action="store_true")
    parser.add_argument("--keep", help="where to save the trained QAT model")
    parser.add_argument("--keep-float", help="where to save the float model")
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    options = parser.parse_args()
    if options.quick:
        options.weights, options.image_size = "scratch", (64, 64)
        options.epochs, options.more = 3, 1  # the first rounds badly
    options.float_results = {}  # of each split
    if options.image_size is not None:
        options.image_size = tuple(options.image_size)
    return options


if __name__ == "__main__":
    main()
