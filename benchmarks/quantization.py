"""What int8 costs: AP of float, of int8 after training, and of int8 trained for.

    python benchmarks/quantization.py                          # Lite0, from ImageNet
    python benchmarks/quantization.py --model efficientdet-d0 --weights scratch
    python benchmarks/quantization.py --archive runs/cats

Trains a detector on the blood cells (or opens one that was trained on them), writes it
as a float file and as an int8 file with 100 calibration images, goes on with
`quantize_aware`, and writes int8 from that. Each file is judged on `test`, which no
model was trained on. (The default recipe was chosen by it: docs/scorecard.md.) Prints a
JSON line for each. With `--trains-float` the float model is also trained on for as many
steps, which shows what the steps alone are worth.
"""

import argparse
import json
import pathlib
import tempfile
import time

import keras

import effdet_keras as ek
from effdet_keras.train.compile_config import refining_config

BLOOD_CELLS = pathlib.Path(ek.data.__file__).parent / "blood_cells"
NUMBERS = ("AP", "AP50", "AP75")


def main():
    options = read_options()
    train = ek.data.load(options.data, "train")
    test = ek.data.load(options.data, "test", class_names=train.class_names)
    keras.utils.set_random_seed(options.seed)
    folder = pathlib.Path(tempfile.mkdtemp())
    archive = options.archive
    if archive is None:
        archive = folder / "float.keras"
        float_model(train, options).save(archive)
    model = ek.EfficientDet.from_archive(archive)
    judge(model, "float", folder, test, options, precision="float32")
    judge(
        model,
        "int8 after training",
        folder,
        test,
        options,
        precision="int8",
        calibration=train,
    )
    for rounds in (False, True) if options.trains_float else (True,):
        model = ek.EfficientDet.from_archive(archive)
        model.compile_from_config(refining_config(model))
        if rounds:
            model.quantize_aware(delay=options.delay)
        start = time.process_time()
        model.fit(train, batch_size=options.batch_size, epochs=options.more, verbose=2)
        minutes = round((time.process_time() - start) / 60, 2)
        title = "int8 trained for" if rounds else "float, trained on"
        precision = "int8" if rounds else "float32"
        judge(
            model,
            title,
            folder,
            test,
            options,
            precision=precision,
            cpu_minutes=minutes,
        )
        if rounds and options.keep is not None:
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


def judge(model, title, folder, test, options, *, cpu_minutes=None, **export):
    path = folder / "judged.tflite"
    report = model.export(path, evaluate=test, verbose=0, **export)
    live, found = (report.metrics[name] for name in ("model", "export"))
    line = {
        "model": options.model,
        "case": title,
        "image_size": model.config.image_size,
        **{name: round(found[name], 4) for name in NUMBERS},
        "AP_of_live_model": round(live["AP"], 4),
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
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=12, help="of the float model")
    parser.add_argument("--more", type=int, default=6, help="epochs of QAT")
    parser.add_argument("--delay", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trains-float", action="store_true")
    parser.add_argument("--keep", help="where to save the trained QAT model")
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    options = parser.parse_args()
    if options.quick:
        options.weights, options.image_size = "scratch", (64, 64)
        options.epochs, options.more = 3, 1  # the first rounds badly
    if options.image_size is not None:
        options.image_size = tuple(options.image_size)
    return options


if __name__ == "__main__":
    main()
