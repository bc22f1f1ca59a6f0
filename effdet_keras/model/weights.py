"""Methods of `EfficientDet` that load, convert and share weights."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import keras

from effdet_keras.data.dataset import DetectionDataset, checked_class_names
from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.errors import InvalidValueError, check_argument, require
from effdet_keras.network.build import check_precision
from effdet_keras.network.config import MODEL_NAMES, EfficientDetConfig

if TYPE_CHECKING:
    from effdet_keras.weights.assign import LoadReport


class ModelWeights:
    """Adds methods to load weights from files and the web, and to share them."""

    @classmethod
    def from_preset(
        cls,
        name: str,
        weights: str | os.PathLike | None = None,
        num_classes: int | None = None,
        class_names: Sequence[str] | None = None,
        category_ids: Sequence[int] | None = None,
        *,
        seg_class_names: Sequence[str] | None = None,
        dataset: DetectionDataset | None = None,
        anchors: str | None = None,
        dtype: str | keras.DTypePolicy | None = None,
        averages: bool = True,
        skip_mismatch: bool = False,
        pipeline_config: str | os.PathLike | None = None,
        verbose: int = 1,
        **config_overrides: Any,
    ) -> Self:
        """Creates a published model by name, with random or pretrained weights.

        Args:
            name: string, one of `MODEL_NAMES`, such as "efficientdet-d0".
            weights: None or "none" for random weights; a key of the published weights
                that `effdet_keras.list_presets()` shows, such as "coco" or "imagenet"
                (only the backbone); or a path or URL, see `load_pretrained`.
            num_classes: int. By default it is the number of `class_names`, or that of
                the weights, or 90.
            class_names, category_ids: sequences of one string and one int per label. By
                default they are those of the weights, if the number is the same. For
                other classes see `load_pretrained`.
            seg_class_names: sequence of strings, one per pixel class, for
                `heads=("object_detection", "segmentation")`.
            dataset: `effdet_keras.data.DetectionDataset` to train on. It gives
                `class_names`, `category_ids` and `seg_class_names` if they are None.
                Values of "auto" are fitted to it.
            anchors: "auto" fits `anchor_scale` and `aspect_ratios` to the boxes of
                `dataset`. It does not if `weights` are those of a detector, whose heads
                were trained with their anchors. None keeps the anchors of the model.
            dtype: dtype policy of the network, such as "mixed_bfloat16". None is
                `keras.config.dtype_policy()`.
            averages, skip_mismatch, pipeline_config, verbose: see `load_pretrained`.
            **config_overrides: fields of `EfficientDetConfig`. Other fields, such as
                the normalization, have the values with which the weights were trained.
                `image_size="auto"` is the smallest size, in the shape of the images of
                `dataset`, at which two conditions hold. First, nine of ten boxes, and
                half of the boxes of each class, have a side (the square root of their
                area) of at least 24 pixels; for this it is at most 1.6 times the
                model's default size. Second, half of all boxes have a side of at least
                96 pixels; for this it is at most the model's default size. Above the
                model's default size, it is no larger than most images.

        Returns:
            `EfficientDet`.

        Raises:
            ValueError: If the name is unknown, a field is wrong, the numbers of classes
                do not agree, the weights do not fit, or something is "auto" without a
                `dataset`.
            FileNotFoundError: If the weights file does not exist.

        Example:
            >>> from effdet_keras.model.efficientdet import EfficientDet
            >>> model = EfficientDet.from_preset("efficientdet-lite0", num_classes=3)
            >>> model.config.image_size, model.config.num_classes
            ((320, 320), 3)
        """
        from effdet_keras.weights.identify import num_classes_of
        from effdet_keras.weights.pretrained import config_for_weights, load_source
        from effdet_keras.weights.read_weights import read_weights

        weights = None if weights == "none" else weights
        # Errors that do not depend on the weights are raised before a download.
        rule = (
            "`from_preset` takes the name of a model. Load a `.keras` file, or the "
            "best checkpoint in a folder, with `EfficientDet.from_archive(path)`"
        )
        is_path = str(name).endswith(".keras") or os.path.exists(str(name))
        require(name in MODEL_NAMES or not is_path, rule, name=name)
        EfficientDetConfig.from_name(name)
        check_precision(dtype)
        _check_auto(name, dataset, anchors, config_overrides.get("image_size"))
        class_names = _checked(class_names)
        if num_classes is not None:
            config_overrides["num_classes"] = num_classes
        source = None
        if weights is not None:
            source = read_weights(
                weights,
                name,
                averages=averages,
                pipeline_config=pipeline_config,
                verbose=verbose,
            )
        if dataset is not None and class_names is None:
            class_names = dataset.class_names
            category_ids = category_ids or dataset.category_ids
        if dataset is not None and seg_class_names is None:
            seg_class_names = dataset.seg_class_names
        seg_class_names = _segmentation_class_names(
            seg_class_names, source, config_overrides
        )
        has_heads = source is not None and num_classes_of(source) is not None
        fits_anchors = anchors == "auto" and not has_heads  # which have their own
        config_overrides = _fitted(name, dataset, fits_anchors, config_overrides)
        config, class_names, category_ids = config_for_weights(
            name,
            source,
            class_names=class_names,
            category_ids=category_ids,
            overrides=config_overrides,
        )
        postprocess = None if source is None else source.postprocess
        model = cls(
            config,
            class_names=class_names,
            category_ids=category_ids,
            seg_class_names=seg_class_names if config.has_segmentation else None,
            postprocess=postprocess and Postprocess.from_config(postprocess),
            dtype=dtype,
        )
        if source is not None:
            load_source(model, source, skip_mismatch=skip_mismatch, verbose=verbose)
        return model

    @classmethod
    def from_pipeline_config(
        cls,
        path: str | os.PathLike,
        weights: str | os.PathLike | None = "auto",
        class_names: Sequence[str] | None = None,
        category_ids: Sequence[int] | None = None,
        *,
        averages: bool = True,
        skip_mismatch: bool = False,
        ignore_unknown: bool = False,
        verbose: int = 1,
        **config_overrides: Any,
    ) -> Self:
        """Creates a compiled model from the Object Detection API's `pipeline.config`.

        The file sets the network, image size, resizing, anchors, scales of box codes,
        classes and postprocessing. It also sets losses, optimizer, schedule, frozen
        weights, the checkpoint to start from and quantization-aware training.
        Unsupported fields are printed. The names of classes are those of the file's
        label map, if it is on this machine or beside the file. 90 classes without names
        get the names of COCO.

        `ek.fine_tune(data, pipeline_config=path)` trains with all of these settings,
        and also with the batch size and augmentation of the file.

        Args:
            path: path of the file.
            weights: "auto" for the file's `fine_tune_checkpoint`, or random weights if
                it names none. The `fine_tune_checkpoint_type` of the file says which
                weights of the checkpoint are loaded. None or "none" for random weights.
                Or a key, path or URL, from which all weights that fit are loaded, see
                `load_pretrained`. If last layers were trained with another anchor order
                or other scales of box codes, they are converted.
            class_names, category_ids: sequences with an entry per label, which replace
                those of the file. For other classes see `load_pretrained`.
            averages, skip_mismatch: see `load_pretrained`.
            ignore_unknown: bool, whether to create the model even if the file has
                settings that change detections, or their quantization, and that are not
                supported. Otherwise that is an error, which lists all of them.
            verbose: 0 or 1, whether to print what was loaded, and unsupported fields.
            **config_overrides: fields of `EfficientDetConfig`, which override those of
                the file.

        Returns:
            `EfficientDet`.

        Raises:
            OSError: If the file, or the `fine_tune_checkpoint` that it names, does not
                exist.
            ValueError: If it is the config of another kind of model, a field has a
                wrong value, or the weights do not fit.

        Example:
            >>> from effdet_keras.model.efficientdet import EfficientDet
            >>> EfficientDet.from_pipeline_config("nowhere.config")
            Traceback (most recent call last):
                ...
            FileNotFoundError: There is no `pipeline.config` at 'nowhere.config'
        """
        from effdet_keras.extras.tfod.model import model_of_pipeline

        return model_of_pipeline(
            cls,
            path,
            weights,
            class_names=_checked(class_names),
            category_ids=category_ids,
            averages=averages,
            skip_mismatch=skip_mismatch,
            ignore_unknown=ignore_unknown,
            verbose=verbose,
            overrides=config_overrides,
        )

    @classmethod
    def from_archive(cls, path: str | os.PathLike, resume: bool = False) -> Self:
        """Loads a model that `CheckpointArchive` or `model.save` wrote.

        If the model has moving averages, they are in place of its weights.

        Args:
            path: path of the `.keras` file, or of the folder of an archive or a run; or
                the address of one of them, such as `s3://bucket/run`
                (docs/remote_files.md). From a folder, the best checkpoint is loaded, or
                with `resume` the last one. If that is damaged, a warning is given, and
                the newest is loaded of the last but one, the best and the kept copies.
            resume: bool. True also keeps the raw weights. The next `fit` resumes from
                them, bit for bit, in the dtype policy of the earlier training. False
                makes the averages the only weights, for a new training, in the dtype
                policy of this process. The model is compiled as before, and optimizer
                and schedule start again.

        Returns:
            `EfficientDet`.

        Raises:
            FileNotFoundError, ValueError: If the file does not exist, is damaged, or is
                of another kind.
            RuntimeError: If the training cannot be resumed, because the state of the
                optimizer does not fit.
        """
        from effdet_keras.weights.archive import load_archive
        from effdet_keras.weights.pretrained import load_checkpoint_to_resume

        if resume:
            return load_checkpoint_to_resume(path)
        model = load_archive(path)
        if isinstance(model, ModelWeights):  # a file may hold another model
            model._compile_again()
        return model

    def load_pretrained(
        self,
        source: str | os.PathLike,
        *,
        averages: bool = True,
        skip_mismatch: bool = False,
        checkpoint_type: str | None = None,
        name_map: Mapping[str, str] | None = None,
        class_names: Sequence[str] | None = None,
        sha256: str | None = None,
        pipeline_config: str | os.PathLike | None = None,
        verbose: int = 1,
    ) -> LoadReport:
        """Loads weights from a file of any known format, and prints what was loaded.

        Known formats are google/automl's checkpoints (TF1 names, tf2 object graph,
        `.h5`), PyTorch effdet's `.pth` and `.safetensors`, EfficientNet files of Keras
        Applications, and the formats of this package. The file may be in a folder, in a
        `.tar.gz`, or at an http(s) address, from which it is downloaded once. Nothing
        is unpickled. Everything is checked before the first weight changes.

        - A file with only a backbone does not change the other weights.
        - If the classes of file and model differ, the last layer of the class head
          keeps its weights. If both have class names, the weights of classes with the
          same name are loaded.
        - A model without `class_names` takes those of the file, if the number is the
          same.
        - The moving averages of a compiled model start again from the loaded weights.
          The state of the optimizer does not change.

        Args:
            source: path, URL, or a key such as "coco"; see `from_preset`.
            averages: bool, whether to load moving averages if the file has them, with
                which the reference evaluates. False loads the raw weights.
            skip_mismatch: bool. True keeps the current values of weights that the file
                lacks or has in another shape. False raises an error.
            checkpoint_type: which weights to load, as `fine_tune_checkpoint_type` of
                the Object Detection API: "classification" for the backbone; "detection"
                for the backbone and the BiFPN; "full" for all weights, which then must
                all fit. None is as described above.
            name_map: dict from names of arrays in the file to names of weights, for
                arrays whose names are not those of a known format. A key is a name, as
                `effdet-keras inspect-weights --all` shows it or as in the file, or a
                regular expression that matches whole names. A value is the name of the
                weight in google/automl's checkpoints, or its `path`, and may contain
                groups such as `\\1`. Other arrays are loaded as without a `name_map`.
                For a file of an unknown network, it has to name all arrays to load;
                with `skip_mismatch=True` the other weights keep their values.
            class_names: sequence of strings, the names of the file's classes, if the
                file does not have them.
            sha256: string, digest that a downloaded file must have.
            pipeline_config: path of the `pipeline.config` for a checkpoint of the
                Object Detection API, or of its folder, if it is not in the folder of
                the checkpoint.
            verbose: 0 or 1, whether to print the report.

        Returns:
            `LoadReport`.

        Raises:
            ValueError: If the file is damaged, has no known format, or does not fit.
                The message names the array, both shapes and the cure. Or if a name in
                `name_map` matches no array, or is not the name of a weight.
            OSError: If the file does not exist or cannot be downloaded.
            ImportError: If a package is missing that reads this format.

        Example:
            >>> import tempfile
            >>> small = {"image_size": 64, "max_level": 6}
            >>> from effdet_keras.model.efficientdet import EfficientDet
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", class_names=["cat", "dog"], **small)
            >>> path = f"{tempfile.mkdtemp()}/pets.weights.h5"
            >>> model.save_weights(path)
            >>> other = EfficientDet.from_preset(
            ...     "efficientdet-d0", class_names=["dog", "bird", "fox"], **small)
            >>> report = other.load_pretrained(
            ...     path, class_names=["cat", "dog"], verbose=0)
            >>> report.new[0].reason, report.new[0].carried
            ('the file has 2 classes, and the model has 3', ('dog',))
        """
        from effdet_keras.weights.pretrained import (
            check_boxes_are_known,
            check_own_network,
            load_source,
        )
        from effdet_keras.weights.read_weights import read_weights, with_class_names

        check_own_network(self, "load weights of other files", "load_weights")
        class_names = _checked(class_names)
        source = read_weights(
            source,
            self.config.name,
            averages=averages,
            sha256=sha256,
            pipeline_config=pipeline_config,
            name_map=name_map,
            verbose=verbose,
        )
        if class_names is not None:
            source = with_class_names(source, class_names)
        check_boxes_are_known(self, source, checkpoint_type)
        return load_source(
            self,
            source,
            skip_mismatch=skip_mismatch,
            checkpoint_type=checkpoint_type,
            verbose=verbose,
        )

    def export_checkpoint(self, path: str | os.PathLike, format: str) -> None:
        """Writes the weights in the checkpoint format of an older tool.

        Files of the same path are replaced, as by `save`. But a file `checkpoint` that
        names another checkpoint stays, with a warning.

        Args:
            path: for "automl-tf1", the prefix of the checkpoint, such as
                "out/efficientdet-d0/model"; for "torch-effdet", a path that ends in
                `.pth` or `.safetensors`.
            format: "automl-tf1" for a checkpoint with google/automl's names, which has
                the raw weights and, as `ExponentialMovingAverage`, the averages; or
                "torch-effdet" for the state dict of PyTorch effdet's `tf_efficientdet`
                model of this size, which has the averages.

        Raises:
            ValueError: If the format is unknown, the path does not fit it, or
                the older tool does not support the network.

        Example:
            >>> import tempfile
            >>> from effdet_keras.model.efficientdet import EfficientDet
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", image_size=64, num_classes=2, max_level=6)
            >>> prefix = f"{tempfile.mkdtemp()}/model"
            >>> model.export_checkpoint(prefix, format="automl-tf1")
            >>> model.load_pretrained(prefix, verbose=0).num_averages > 0
            True
        """
        from effdet_keras.extras.older_tools import export_checkpoint

        export_checkpoint(self, path, format)

    def push_to_hub(
        self,
        address: str,
        *,
        license: str | None = None,
        private: bool | None = None,
        overwrite: bool = False,
        metrics: Mapping[str, float] | None = None,
    ) -> str:
        """Pushes the model to the Hugging Face Hub, with a model card.

        One commit writes its archive (`best.keras`), a description (`archive.json`) and
        a model card (`README.md`) to a repository, which is created if it does not
        exist. `from_archive("hf://owner/name")` loads the model again.

        Args:
            address: `hf://owner/name`.
            license: string, the license of the weights in the hub's spelling, such as
                "apache-2.0". None keeps the license of an existing card.
            private: bool, whether a new repository is private. None is the hub's
                default.
            overwrite: bool, whether to commit also to a repository with another model
                or other files. Files with other names are kept.
            metrics: dict of COCO metrics by name for the card, as `Predictor.evaluate`
                returns them.

        Returns:
            string, the address of the commit.

        Raises:
            ValueError: If `address` is not the address of a whole repository.
            FileExistsError: If the repository has other content, and `overwrite` is
                False.
            OSError: If the login does not have the permission, or the hub cannot be
                reached.
            RuntimeError: If `private` is True, and the repository exists and is public.
            ImportError: If the extra is not installed.

        Example:
            >>> from effdet_keras.model.efficientdet import EfficientDet
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2)
            >>> model.push_to_hub("cats")
            Traceback (most recent call last):
                ...
            effdet_keras.errors.InvalidValueError: An address of the Hugging Face ...
        """
        from effdet_keras.extras.remote.hugging_face import parse_hub_address
        from effdet_keras.weights.archive import write_archive
        from effdet_keras.weights.checkpoint_files import BEST_FILE

        parse_hub_address(address)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, BEST_FILE)
            write_archive(self, path)
            from effdet_keras.extras.sharing.push import push_archive

            return push_archive(
                path,
                address,
                license=license,
                private=private,
                overwrite=overwrite,
                numbers=metrics,
            )


def _check_auto(name, dataset, anchors, image_size):
    """Raises ValueError for a wrong `anchors`, or for "auto" without a dataset."""
    expected = (
        "'auto' or None (to set anchors by numbers, use `anchor_scale`, "
        "`aspect_ratios` and `num_scales`)"
    )
    check_argument(anchors in (None, "auto"), "anchors", anchors, expected)
    if dataset is None and (image_size == "auto" or anchors == "auto"):
        raise InvalidValueError(
            "'auto' fits the anchors or the image size to the boxes of a dataset: "
            f"pass the training dataset, as in `from_preset({name!r}, dataset=train, "
            "image_size='auto')`."
        )


def _checked(class_names):
    if class_names is None:
        return None
    return checked_class_names(class_names, "`class_names`")


def _segmentation_class_names(names, source, overrides):
    """Returns the names of pixel classes, and sets their number in the overrides."""
    heads = overrides.get("heads", ((source and source.config) or {}).get("heads", ()))
    if "segmentation" not in heads or names is None:
        return None
    names = checked_class_names(names, "`seg_class_names`")
    overrides.setdefault("seg_num_classes", len(names))
    return names


def _fitted(name, dataset, fits_anchors, overrides):
    """Returns the overrides of a config, with numbers in place of "auto"."""
    from effdet_keras.data.anchor_fit import fitted_anchors, fitted_image_size

    overrides = dict(overrides)
    if overrides.get("image_size") == "auto":
        del overrides["image_size"]
        config = EfficientDetConfig.from_name(name, **overrides)
        overrides["image_size"] = fitted_image_size(dataset, config)
    if fits_anchors:
        config = EfficientDetConfig.from_name(name, **overrides)
        overrides |= fitted_anchors(dataset, config)
    return overrides
