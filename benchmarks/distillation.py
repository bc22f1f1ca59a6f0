"""What does a teacher gain: AP of students that are trained with and without one.

    python benchmarks/distillation.py TEACHER                 # a .keras of blood cells
    python benchmarks/distillation.py TEACHER --activations hard_swish relu6
    python benchmarks/distillation.py TEACHER --student efficientdet-lite0

With `--activations`: the teacher with another activation, unchanged, after a short
training on annotations, and after one with its former self as the teacher. This also
times each LiteRT file in turn with the teacher's. With `--student`: a smaller model,
trained with and without the teacher. All are evaluated on `test`. Prints a JSON line
per case.
"""

import argparse
import json
import pathlib
import statistics
import tempfile
import time

import keras
import numpy as np

import effdet_keras as ek

BLOOD_CELLS = pathlib.Path(ek.data.__file__).parent / "blood_cells"
ROUNDS = 15


def main():
    options = read_options()
    train = ek.data.load(options.data, "train")
    test = ek.data.load(options.data, "test", class_names=train.class_names)
    teacher = ek.EfficientDet.from_archive(options.teacher)
    say(options, "teacher", teacher, test)
    for activation in options.activations:
        student = teacher.with_activation(activation)
        ratios = {
            f"ms_{precision}_of_teacher": time_ratio(teacher, student, precision, train)
            for precision in options.precisions
        }
        say(options, f"{activation}, as it is", student, test, **ratios)
        for has_teacher in (False, True):
            keras.utils.set_random_seed(options.seed)
            student = teacher.with_activation(activation)
            learn(student, teacher if has_teacher else None, train, options.more)
            title = "teacher" if has_teacher else "annotations alone"
            say(options, f"{activation}, {title}", student, test)
    if options.student is not None:
        for has_teacher in (False, True):
            keras.utils.set_random_seed(options.seed)
            student = new_student(teacher, train, options)
            learn(student, teacher if has_teacher else None, train, options.epochs)
            title = "teacher" if has_teacher else "annotations alone"
            say(options, f"{options.student}, {title}", student, test)


def new_student(teacher, train, options):
    student = ek.EfficientDet.from_preset(
        options.student,
        None if options.weights == "scratch" else options.weights,
        dataset=train,
        image_size=teacher.config.image_size,
        anchor_scale=teacher.config.anchor_scale,
        aspect_ratios=teacher.config.aspect_ratios,
        max_level=teacher.config.max_level,
        verbose=0,
    )
    student.compile()
    return student


def learn(student, teacher, train, epochs):
    arguments = {"batch_size": 4, "epochs": epochs, "verbose": 2}
    if teacher is None:
        student.fit(train, **arguments)
    else:
        ek.distill(teacher, student, train, **arguments)


def time_ratio(teacher, student, precision, train):
    """Returns milliseconds of the student's file divided by the teacher's."""
    with tempfile.TemporaryDirectory() as folder:
        predictors = [
            file_of(model, pathlib.Path(folder, f"{name}.tflite"), precision, train)
            for name, model in (("teacher", teacher), ("student", student))
        ]
        images = np.zeros((1, *teacher.config.image_size, 3), "float32")
        times = [[], []]
        for _ in range(ROUNDS):
            for runtime, found in zip(predictors, times):
                start = time.perf_counter()
                runtime.run(images)
                found.append(time.perf_counter() - start)
    medians = [1000 * statistics.median(found) for found in times]
    return {
        "teacher": round(medians[0], 1),
        "student": round(medians[1], 1),
        "ratio": round(medians[1] / medians[0], 2),
    }


def file_of(model, path, precision, train):
    options = {"calibration": train} if precision == "int8" else {}
    images = [train[0]["image"]]
    model.export(
        path,
        precision=precision,
        outputs="raw",
        images=images,
        verbose=0,
        **options,
    )
    return ek.Predictor.load(path, num_threads=1).detector.runtime


def say(options, title, model, test, **more):
    numbers = ek.Predictor(model).evaluate(test, verbose=False)
    line = {"case": title, "model": model.config.name, **more}
    line |= {name: round(float(numbers[name]), 4) for name in ("AP", "AP50", "AP75")}
    print(json.dumps(line), flush=True)


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("teacher", help="a .keras that was trained on the data")
    parser.add_argument("--data", default=BLOOD_CELLS)
    parser.add_argument("--activations", nargs="*", default=[])
    parser.add_argument("--precisions", nargs="*", default=["float32", "int8"])
    parser.add_argument("--student", help="a smaller model, such as efficientdet-lite0")
    parser.add_argument("--weights", default="imagenet", help="of that student")
    parser.add_argument("--epochs", type=int, default=12, help="of that student")
    parser.add_argument("--more", type=int, default=6, help="epochs of an activation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    options = parser.parse_args()
    if options.quick:
        options.activations, options.precisions = ["relu6"], ["float32"]
        options.more = 1
    return options


if __name__ == "__main__":
    main()
