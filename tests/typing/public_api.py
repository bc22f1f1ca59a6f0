"""A user's program in the public API, for the type checker: it is not run.

`mypy` (options in pyproject.toml) checks it with `--strict`. `tests/test_typing.py`
shows that wrong calls are seen.
"""

import numpy as np

import effdet_keras as ek
from effdet_keras.box_ops import clip_boxes
from effdet_keras.visualize import draw_boxes


def load_data() -> tuple[ek.data.DetectionDataset, ek.data.DetectionDataset]:
    train = ek.data.load("DATA", "train")
    valid = ek.data.from_coco("val.json", "val", class_names=train.class_names)
    splits = ek.data.load_splits("DATA")
    report = ek.data.check(splits["train"], model="efficientdet-d0")
    report.save("report.html")
    for problem in report.problems:
        print(problem.severity, problem.kind)
    ek.data.write_coco({"train": train, "val": valid}, "OUT")
    ek.data.convert("DATA", "OUT", "tfrecord")
    print(train.summary(), len(train), train.category_ids)
    first, second = train.split(0.9)
    return first.filter(classes=["cat"]), second


def train_model(
    train: ek.data.DetectionDataset, valid: ek.data.DetectionDataset
) -> ek.EfficientDet:
    model = ek.EfficientDet.from_preset(
        "efficientdet-d0", weights="coco", class_names=train.class_names, image_size=512
    )
    report = model.load_pretrained("d0.h5", checkpoint_type="full")
    print(report.num_loaded)
    report = model.load_pretrained("d0.h5", name_map={"a/(.*)": r"class_net/\1"})
    print([name for _, name in report.mapped])
    model.compile(
        "adamw", loss=ek.DetectionLoss(gamma=2.0), learning_rate=1e-3, freeze="backbone"
    )
    evaluation = ek.callbacks.COCOEvaluation(valid, every=2)
    archive = ek.callbacks.CheckpointArchive("runs/cats")
    images = ek.callbacks.ImageSummary(valid, "logs", num_images=2)
    model.fit(
        model.batches(train, 8, training=True, scale_jitter=(0.5, 1.5)),
        epochs=5,
        callbacks=[evaluation, archive, images],
    )
    model.unfreeze()
    numbers: dict[str, float] = evaluation.evaluate(model)
    print(numbers["AP"])
    return ek.EfficientDet.from_archive("runs/cats", resume=True)


def train_in_one_call() -> ek.EfficientDet:
    configuration = ek.RunConfiguration(data="DATA", epochs=20, image_size=(192, 256))
    result = ek.fine_tune(configuration=configuration.replace(seed=1), out="runs/cats")
    result = ek.fine_tune("DATA", hparams={"gamma": 2.0}, batch_size=4, resume=False)
    numbers: dict[str, float] = result.numbers
    print(numbers["AP"], result.split, result.history["loss"], result.folder)
    return result.model


def detect(model: ek.EfficientDet) -> ek.Detections:
    found = model.detect("street.jpg", score_threshold=0.4)
    several = model.detect(["a.jpg", np.zeros((8, 8, 3), np.uint8)])
    assert isinstance(found, ek.Detections)
    assert isinstance(several, list)
    found.filter(score=0.5, classes=["cat"]).save("found.png")
    print(found.names, found.boxes.shape, found.to_coco())
    report = model.export("pets.tflite", precision="int8")
    print(report.metrics)
    predictor = ek.Predictor.load("pets.tflite", num_threads=2)
    for frame in predictor.detect_video("street.mp4", out="drawn.mp4"):
        print(len(frame))
    image = np.zeros((8, 8, 3), np.uint8)
    drawn: np.ndarray = draw_boxes(image, found.boxes, found.labels)
    print(drawn.shape)
    return found


def analyse(found: ek.Detections) -> None:
    names = ["cat", "dog"]
    result = ek.metrics.ImageResult(
        1,
        truth_boxes=np.zeros((0, 4)),
        truth_labels=np.zeros(0, int),
        boxes=found.boxes,
        scores=found.scores,
        labels=found.labels,
        size=(480, 640),
    )
    columns = {"light": {1: "night"}}
    evaluation = ek.metrics.analyze_results([result], names, columns=columns)
    print(evaluation.voc_10.mean, evaluation.voc_10.per_class.tolist())
    print([curve.average_precision for curve in evaluation.curves])
    thresholds = {x.name: x.threshold for x in evaluation.thresholds}
    matrix: np.ndarray = evaluation.confusion
    print(thresholds["cat"], matrix[0, 1])
    rows = [*evaluation.by_object_size, *evaluation.by_column["light"]]
    print([row.ap50 for row in rows])
    settings: ek.metrics.ScoreSettings = evaluation.score_settings()
    temperature: float = settings.temperature or evaluation.temperature or 1.0
    print(temperature)
    print(evaluation.calibration.expected_error, evaluation.suspects[0].kind)
    print(evaluation.worst_images[0].badness)
    if evaluation.errors is not None:
        print(evaluation.errors.gains["missed"])


def parts() -> None:
    config = ek.EfficientDetConfig(num_classes=3, image_size=(384, 640))
    model = ek.EfficientDet(config, class_names=["a", "b", "c"])
    model.postprocess = ek.Postprocess(method="hard", iou_threshold=0.6)
    print(clip_boxes(np.zeros((1, 4)), (32, 32)))
    print(ek.COCO_CLASS_NAMES[0], ek.list_presets()[0].url)
    metric = ek.metrics.COCOMetric("val.json")
    metric.update(1, np.zeros((0, 4)), np.zeros(0), np.zeros(0))
    try:
        ek.EfficientDet.from_preset("efficientdet-d9")
    except ek.errors.InvalidValueError as error:
        print(error)
