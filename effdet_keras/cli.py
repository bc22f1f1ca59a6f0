"""The `effdet-keras` command: reads arguments, calls the package."""

import argparse
import os
import pathlib
import sys
import warnings

from effdet_keras._internal.allocator import tune_allocator
from effdet_keras._version import __version__


def main(argv=None):
    """Runs the command line; returns its exit status."""
    arguments = _parser().parse_args(argv)
    # TensorFlow's notes on its build are not for the reader of a table.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        with warnings.catch_warnings():
            # Without the line of ours that warns, which says nothing to the reader.
            warnings.showwarning = lambda message, *_, **__: _say(message)
            return arguments.run(arguments)
    except (
        *(ValueError, TypeError, OSError, ImportError),
        *(ArithmeticError, RuntimeError),
    ) as error:
        _say(error)
        return 1


def _say(message):
    print(f"effdet-keras: {message}", file=sys.stderr, flush=True)


def console():
    """`main` for the installed command: with an allocator that suits training."""
    tune_allocator()
    return main()


def _parser():
    parser = argparse.ArgumentParser(prog="effdet-keras", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_convert(commands)
    _add_inspect(commands)
    _add_import(commands)
    _add_predict(commands)
    _add_export(commands)
    _add_benchmark(commands)
    return parser


def _add_demo(commands):
    demo = commands.add_parser(
        "demo",
        help="make a small dataset, train on it, evaluate, archive, draw",
        description="The whole way on generated images of shapes, in 5 minutes.",
    )
    demo.add_argument("--out", default="demo", help="folder to write to (demo)")
    demo.add_argument("--epochs", type=int, default=None, help="epochs to train")
    demo.add_argument("--images", type=int, default=None, help="images to train on")
    demo.add_argument("--seed", type=int, default=0, help="random seed (0)")
    demo.set_defaults(run=_demo)


def _add_convert(commands):
    convert = commands.add_parser(
        "convert",
        help="write a dataset in another form",
        description="Reads a dataset in any known form and writes a new folder in "
        "another, images included, with all its splits or one.",
    )
    convert.add_argument("data", metavar="DATA", help="file or folder of the dataset")
    convert.add_argument("out", metavar="OUT", help="folder to make")
    convert.add_argument(
        "--to",
        required=True,
        choices=("coco", "voc", "yolo", "csv", "tfrecord", "tfds"),
        help="form to write",
    )
    convert.add_argument("--split", default=None, help="only this part, such as train")
    convert.add_argument(
        "--num-shards", type=int, default=None, help="files a split, of tfrecord"
    )
    convert.add_argument(
        "--csv-form", choices=("tfod", "automl"), default=None, help="of csv (tfod)"
    )
    convert.add_argument(
        "--skip-errors",
        action="store_true",
        help="leave out what is wrong in DATA instead of stopping",
    )
    convert.set_defaults(run=_convert)


def _add_inspect(commands):
    inspect = commands.add_parser(
        "inspect",
        help="say what is wrong with a dataset, or what is in a file of weights",
        description="Of a dataset: reads it as training does and names what is wrong "
        "with it, and how well anchors cover it; exit status 1 if there are errors, 0 "
        "if not. Of weights (a file of any known kind, its folder, or an address): "
        "which model they are of, and what would be loaded.",
    )
    inspect.add_argument(
        "source", metavar="DATA-OR-WEIGHTS", help="file, folder, or address"
    )
    inspect.add_argument(
        "--model",
        default=None,
        help="whose anchors, or whose weights (efficientdet-d0, or what fits)",
    )
    data = inspect.add_argument_group("of a dataset")
    data.add_argument("--split", default=None, help="only this part, such as train")
    data.add_argument(
        "--image-size",
        type=int,
        nargs="+",
        default=None,
        help="input of the network in pixels: one number, or height and width",
    )
    data.add_argument(
        "--html", default=None, help="file for a report with images; one a split"
    )
    data.add_argument(
        "--no-decode",
        dest="decode",
        action="store_false",
        help="look at the heads of the images only",
    )
    weights = inspect.add_argument_group("of weights")
    weights.add_argument("--all", action="store_true", help="list every array")
    _add_raw(weights)
    inspect.set_defaults(run=_inspect)


def _add_import(commands):
    imports = commands.add_parser(
        "import",
        help="read weights of any known kind, write them in another form",
        description="Reads google/automl's, PyTorch effdet's, Keras Applications' or "
        "our own weights. What is written follows from the end of OUT: .keras, "
        ".weights.h5, .pth or .safetensors (PyTorch effdet); else it is the prefix of "
        "a TF1 checkpoint of google/automl.",
    )
    imports.add_argument("source", metavar="SOURCE", help="file, folder or address")
    imports.add_argument("out", metavar="OUT", help="what to write; must not exist")
    imports.add_argument(
        "--model", default=None, help="which model it is, where that is not clear"
    )
    imports.add_argument(
        "--class-names", nargs="+", default=None, help="names of the file's classes"
    )
    imports.add_argument(
        "--skip-mismatch",
        action="store_true",
        help="leave weights that do not fit as they are (random)",
    )
    _add_raw(imports)
    imports.set_defaults(run=_import)


def _add_predict(commands):
    predict = commands.add_parser(
        "predict",
        help="detect in images, folders, videos, cameras",
        description="Prints a line for each image. With --out it writes them with "
        "their boxes drawn, with --json all boxes as a COCO file with scores. Exit "
        "status 1 if an image could not be read.",
    )
    _add_model(predict)
    predict.add_argument(
        "inputs",
        metavar="INPUT",
        nargs="+",
        help="image, folder of images, video, number of a camera, or address of a "
        "stream; Ctrl-C ends the last two",
    )
    predict.add_argument("--out", default=None, help="folder for what is drawn")
    predict.add_argument("--json", default=None, help="file for the boxes")
    predict.add_argument(
        "--score", type=float, default=0.3, help="lowest score to keep (0.3)"
    )
    predict.add_argument("--batch-size", type=int, default=1, help="images at once (1)")
    predict.add_argument(
        "--tiles",
        type=int,
        nargs="?",
        const=True,
        default=None,
        help="cut large images into tiles of this side in pixels (the network's)",
    )
    predict.add_argument(
        "--tta",
        type=float,
        nargs="*",
        default=None,
        metavar="SCALE",
        help="look at each image and its mirror image, at these scales (1.0), and "
        "fuse what is found",
    )
    _add_threads(predict)
    predict.set_defaults(run=_predict)


def _add_export(commands):
    export = commands.add_parser(
        "export",
        help="write a model for another runtime, and check it there",
        description="Writes a SavedModel (a folder), or a .tflite, .onnx or .xml "
        "(OpenVINO) file, runs it beside the model on images, and says how far they "
        "are apart. An option that a format does not have is an error.",
    )
    _add_model(export, only_live=True)
    export.add_argument("out", metavar="OUT", help="folder, or file by its ending")
    export.add_argument(
        "--format",
        default=None,
        choices=("saved_model", "litert", "onnx", "openvino"),
        help="by default what the end of OUT says",
    )
    export.add_argument(
        "--images", default=None, help="folder of images to check with (drawn ones)"
    )
    export.add_argument(
        "--evaluate",
        metavar="DATA",
        default=None,
        help="dataset on which to compare the AP of model and export",
    )
    export.add_argument(
        "--split", default=None, help="only this part of the data, such as valid"
    )
    of_formats = export.add_argument_group("of some formats")
    of_formats.add_argument(
        "--precision", default=None, help="float32, float16, dynamic, int8"
    )
    of_formats.add_argument(
        "--outputs", default=None, help="detections, or raw: the network's own"
    )
    of_formats.add_argument(
        "--output-type", default=None, help="of int8 with raw outputs: float32, uint8"
    )
    of_formats.add_argument(
        "--calibration",
        metavar="DATA",
        default=None,
        help="for int8: folder of images like yours, or dataset (its --split)",
    )
    of_formats.add_argument(
        "--calibration-images", type=int, default=None, help="how many of them (100)"
    )
    of_formats.add_argument(
        "--batch-size", type=int, default=None, help="images at once, fixed"
    )
    of_formats.add_argument(
        "--opset", type=int, default=None, help="of the ONNX standard, 13 to 18 (17)"
    )
    of_formats.add_argument(
        "--max-detections", type=int, default=None, help="of litert's postprocess"
    )
    of_formats.add_argument(
        "--score-threshold", type=float, default=None, help="the same (0.01)"
    )
    of_formats.add_argument(
        "--iou-threshold", type=float, default=None, help="the same"
    )
    of_formats.add_argument(
        "--per-class",
        action="store_true",
        default=None,
        help="the same: a box suppresses those of its class alone",
    )
    of_formats.add_argument(
        "--tfod-names",
        dest="names",
        action="store_const",
        const="tfod",
        default=None,
        help="inputs and outputs as the Object Detection API names them",
    )
    of_formats.add_argument(
        "--frozen-graph",
        action="store_true",
        default=None,
        help="frozen_graph.pb beside the SavedModel",
    )
    export.set_defaults(run=_export)


def _add_benchmark(commands):
    benchmark = commands.add_parser(
        "benchmark",
        help="how long a model takes: reading, letterbox, network, postprocess",
    )
    _add_model(benchmark)
    benchmark.add_argument(
        "--images", default=None, help="folder of images (made ones, 640 x 480)"
    )
    benchmark.add_argument(
        "--batch-size", type=int, default=1, help="images at once (1)"
    )
    benchmark.add_argument(
        "--runs", type=int, default=30, help="batches to measure, after 3 more (30)"
    )
    benchmark.add_argument("--json", default=None, help="file for the numbers")
    benchmark.add_argument(
        "--trace", default=None, help="folder for a profile of what takes the time"
    )
    _add_threads(benchmark)
    benchmark.set_defaults(run=_benchmark)


def _add_model(parser, only_live=False):
    exported = "" if only_live else ", or an exported file or folder"
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a .keras file, a folder of CheckpointArchive, the name of a published "
        f"model such as efficientdet-d0{exported}",
    )


def _add_threads(parser):
    parser.add_argument(
        "--threads", type=int, default=None, help="threads of an exported file"
    )


def _add_raw(parser):
    parser.add_argument(
        "--raw",
        dest="averages",
        action="store_false",
        help="the raw weights where there are moving averages",
    )


def _demo(arguments):
    from effdet_keras.commands.run_demo import run_demo

    options = {"epochs": arguments.epochs, "num_train": arguments.images}
    given = {name: value for name, value in options.items() if value is not None}
    run_demo(arguments.out, seed=arguments.seed, **given)
    return 0


def _convert(arguments):
    from effdet_keras.data import convert

    convert(
        arguments.data,
        arguments.out,
        arguments.to,
        split=arguments.split,
        num_shards=arguments.num_shards,
        csv_form=arguments.csv_form,
        on_error="skip" if arguments.skip_errors else "raise",
    )
    return 0


def _inspect(arguments):
    from effdet_keras.weights.pretrained import is_weights

    if is_weights(arguments.source):
        return _inspect_weights(arguments)
    return _inspect_data(arguments)


def _inspect_weights(arguments):
    from effdet_keras.weights.describe import describe_weights, list_arrays
    from effdet_keras.weights.pretrained import read_weights

    source = read_weights(
        arguments.source, arguments.model, averages=arguments.averages
    )
    print(describe_weights(source, arguments.model))
    if arguments.all:
        print(list_arrays(source))
    return 0


def _inspect_data(arguments):
    from effdet_keras.data import check, check_splits

    size = arguments.image_size
    options = {
        "model": arguments.model or "efficientdet-d0",
        "image_size": size[0] if size and len(size) == 1 else size,
        "decode": arguments.decode,
    }
    if arguments.split is None:
        reports = check_splits(arguments.source, **options)
    else:
        report = check(arguments.source, split=arguments.split, **options)
        reports = {arguments.split: report}
    for split, report in reports.items():
        print(f"\n== {split} ==\n{report}")
        if arguments.html is not None:
            page = pathlib.Path(arguments.html)
            page = page if len(reports) == 1 else page.with_stem(f"{page.stem}-{split}")
            report.save(page)
            print(f"Report with images: {page}")
    return 0 if all(report.ok for report in reports.values()) else 1


def _import(arguments):
    from effdet_keras.commands.import_weights import import_weights

    import_weights(
        arguments.source,
        arguments.out,
        model_name=arguments.model,
        class_names=arguments.class_names,
        averages=arguments.averages,
        skip_mismatch=arguments.skip_mismatch,
    )
    return 0


def _predict(arguments):
    from effdet_keras.commands.predict_files import predict_files

    failed = predict_files(
        _predictor(arguments),
        arguments.inputs,
        arguments.out,
        score_threshold=arguments.score,
        json_path=arguments.json,
        batch_size=arguments.batch_size,
        tiles=arguments.tiles,
        augment=True if arguments.tta == [] else arguments.tta,
    )
    return 1 if failed else 0


def _export(arguments):
    from effdet_keras.data import load
    from effdet_keras.images import IMAGE_SUFFIXES

    options = (
        *("precision", "outputs", "output_type", "batch_size", "opset"),
        *("names", "frozen_graph", "calibration_images"),
        *("max_detections", "score_threshold", "iou_threshold", "per_class"),
    )
    given = {name: getattr(arguments, name) for name in options}
    if arguments.evaluate is not None:
        given["evaluate"] = load(arguments.evaluate, arguments.split)
    if arguments.calibration is not None:
        source = pathlib.Path(arguments.calibration)
        files = source.iterdir() if source.is_dir() else ()
        is_images = any(file.suffix.lower() in IMAGE_SUFFIXES for file in files)
        given["calibration"] = source if is_images else load(source, arguments.split)
    _live_model(arguments.model).export(
        arguments.out,
        arguments.format,
        images=arguments.images,
        **{name: value for name, value in given.items() if value is not None},
    )
    return 0


def _benchmark(arguments):
    from effdet_keras.commands.benchmark_model import benchmark

    report = benchmark(
        _predictor(arguments),
        arguments.images,
        batch_size=arguments.batch_size,
        runs=arguments.runs,
        trace=arguments.trace,
    )
    print(report)
    if arguments.json is not None:
        report.save(arguments.json)
    return 0


def _predictor(arguments):
    from effdet_keras.predictor import Predictor

    if _is_published(arguments.model):
        return Predictor(_live_model(arguments.model))
    return Predictor.load(arguments.model, num_threads=arguments.threads)


def _live_model(model):
    from effdet_keras.models import EfficientDet

    if _is_published(model):
        return EfficientDet.from_preset(model, weights="coco")
    return EfficientDet.from_archive(model)


def _is_published(model):
    from effdet_keras.config import MODEL_NAMES

    return model in MODEL_NAMES and not pathlib.Path(model).exists()


if __name__ == "__main__":
    sys.exit(main())
