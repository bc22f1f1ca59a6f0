"""Where the weights of a model come from, and where else they go."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import keras

from effdet_keras.data.dataset import DetectionDataset, checked_class_names
from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.errors import InvalidValueError, check_argument
from effdet_keras.network.build import check_precision
from effdet_keras.network.config import EfficientDetConfig

if TYPE_CHECKING:
    from effdet_keras.weights.assign import LoadReport


class ModelWeights:
    """What `EfficientDet` does with weights of files and of the web, as a mix-in."""

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
        """A published model by name, with random weights or weights of a file.

        Args:
            name: string, one of `MODEL_NAMES`, such as "efficientdet-d0".
            weights: None or "none"; a key of the published weights that
                `effdet_keras.list_presets()` shows, such as "coco" or "imagenet" (the
                backbone); or a path or URL, see `load_pretrained`.
            num_classes: int; by default the number of `class_names`, or that of
                the weights, or 90.
            class_names, category_ids: sequences of one string, one int per label. By
                default those of the weights, where the number is the same; for other
                classes see `load_pretrained`.
            seg_class_names: sequence of strings, one per class of pixels, for
                `heads=("object_detection", "segmentation")`.
            dataset: `effdet_keras.data.DetectionDataset` to train on, which gives
                `class_names`, `category_ids` and `seg_class_names` where they are
                None, and what is to be "auto".
            anchors: "auto" fits `anchor_scale` and `aspect_ratios` to the boxes of
                `dataset`, unless `weights` are a detector's, whose heads know their
                anchors. None keeps the model's.
            dtype: dtype policy of the network, such as "mixed_bfloat16"; None for that
                of `keras.config.dtype_policy()`.
            averages, skip_mismatch, pipeline_config, verbose: see `load_pretrained`.
            **config_overrides: fields of `EfficientDetConfig`. What is not given, such
                as the normalisation, is what the weights were trained with.
                `image_size="auto"` is the smallest size, in the shape of the images of
                `dataset`, at which nine boxes of ten, and half of those of each class,
                have a side (the square root of their area) of 24 pixels, and half of
                all boxes one of 96. It is at most 1.6 times the model's own for the
                first, and the model's own for the second; above the model's own it is
                no larger than most images.

        Returns:
            `EfficientDet`.

        Raises:
            ValueError: If the name is unknown, a field is wrong, the counts do
                not agree, the weights do not fit, or something is "auto" without a
                `dataset`.
            FileNotFoundError: If there is no file of weights.

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
        # What is wrong in any case, before a download.
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
        """A model, compiled, from a `pipeline.config` of the Object Detection API.

        Network, image size, resizing, anchors, scales of box codes, classes and
        postprocess are those of the file, and so are losses, optimizer, schedule, what
        is frozen, the checkpoint to start from and quantization-aware training.
        Unsupported fields are printed. Classes have the names of the file's label map,
        where it is on this machine or beside the file; 90 without names are COCO's.

        `ek.fine_tune(data, pipeline_config=path)` trains with all of it, the batch size
        and augmentation too.

        Args:
            path: path of the file.
            weights: "auto" for the file's `fine_tune_checkpoint`, of which its
                `fine_tune_checkpoint_type` is taken, or random weights where it names
                none; None or "none" for random weights; or a key, path or URL, of which
                all that fits is taken, see `load_pretrained`. Last layers that were
                trained with another order of anchors or other scales of codes are
                converted.
            class_names, category_ids: sequences with an entry per label, in the place
                of the file's; for other classes see `load_pretrained`.
            averages, skip_mismatch: see `load_pretrained`.
            ignore_unknown: bool, whether to make the model although the file asks for
                something that changes detections, or its quantization, and is not done
                here. Without it that is an error, which lists all of it.
            verbose: 0 or 1, whether to print what was loaded, and what has no place.
            **config_overrides: fields of `EfficientDetConfig`, in the place of the
                file's.

        Returns:
            `EfficientDet`.

        Raises:
            OSError: If there is no such file, or no `fine_tune_checkpoint` where it
                names one.
            ValueError: If it is the config of another kind of model, or a field has a
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
        """The model that `CheckpointArchive` or `model.save` wrote.

        Args:
            path: path of the `.keras` file, or of the folder of an archive or a run
                (its best checkpoint, or with `resume` its last; if that is damaged, the
                newest of the last but one, the best and the kept copies, with a
                warning); or the address of one of them, such as `s3://bucket/run`
                (docs/remote_files.md).
            resume: bool. Either way the model has the moving averages in the place of
                its weights, where there were any. True keeps the weights of training
                beside them: the next `fit` goes on from these, bit by bit, in the
                dtype policy that it was trained with. False makes the averages its
                only weights, for a new training, in the policy of this process: it is
                compiled as it was, and optimizer and schedule start again.

        Returns:
            `EfficientDet`.

        Raises:
            FileNotFoundError, ValueError: If there is no such file, or it is
                damaged or of another kind.
            RuntimeError: If its training cannot be resumed, because the state of the
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
        """Loads weights of any known kind, and prints what was loaded.

        Known are google/automl's checkpoints (TF1 names, tf2 object graph, `.h5`),
        PyTorch effdet's `.pth` and `.safetensors`, Keras Applications'
        EfficientNet files, and our own; in a folder, in a `.tar.gz`, or behind an
        http(s) address, which is fetched once. Nothing is unpickled. All is
        checked before the first weight changes.

        A file of a backbone alone leaves the rest as it is. Where the classes of
        file and model differ, the last layer of the class head stays as it is;
        where both name their classes, what belongs to a shared name is loaded.
        A model without `class_names` takes those of the file, if the number is the
        same. Moving averages of a compiled model start again from what was loaded; an
        optimizer's state is not touched.

        Args:
            source: path, URL, or a key such as "coco"; see `from_preset`.
            averages: bool, whether to load moving averages where the file has
                them, as the reference evaluates, or the raw weights.
            skip_mismatch: bool, whether to leave weights that the file lacks, or
                has in another shape, as they are, instead of raising.
            checkpoint_type: what to take of the file, as `fine_tune_checkpoint_type`
                of the Object Detection API: "classification", the backbone;
                "detection", the backbone and the BiFPN; "full", all, which then
                must fit. None is as described above.
            name_map: dict from names of arrays in the file to names of weights, for
                arrays that have other names than any known kind of file gives them.
                A key is a name, as `effdet-keras inspect-weights --all` shows it or as
                it is in the file, or a regular expression of whole names; a value is
                the name of the weight in google/automl's checkpoints, or its `path`,
                with groups such as `\\1`. Arrays that it does not name are loaded as
                without it. Also for files of no known network, of which it names all
                that is wanted: with `skip_mismatch=True` the rest stays as it is.
            class_names: sequence of strings, the names of the file's classes
                where it does not tell them.
            sha256: string, digest that a downloaded file must have.
            pipeline_config: path of the `pipeline.config` of a checkpoint of the Object
                Detection API, or of its folder, where it is not in the checkpoint's.
            verbose: 0 or 1, whether to print the report.

        Returns:
            `LoadReport`.

        Raises:
            ValueError: If the file is damaged or of no known kind, or does not
                fit; the message names the array, both shapes and the cure. Or if a name
                in `name_map` matches no array, or is that of no weight.
            OSError: If there is no such file, or it cannot be fetched.
            ImportError: If a package is missing that reads this kind.

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
            ('the file has 2 classes, the model 3', ('dog',))
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
        """Writes the weights in the format of an older tool.

        Args:
            path: for "automl-tf1" the prefix of the checkpoint, such as
                "out/efficientdet-d0/model"; for "torch-effdet" a path that ends
                in `.pth` or `.safetensors`.
            format: "automl-tf1": google/automl's names, with the weights of
                training and, as `ExponentialMovingAverage`, the averages.
                "torch-effdet": the state dict of PyTorch effdet's
                `tf_efficientdet` model of this size, with the averages.

        Raises:
            ValueError: If the format is unknown, the path does not fit it, or
                the older tool has no such network.

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

        Its archive (`best.keras`), a description (`archive.json`) and a card
        (`README.md`) become one commit of a repository, which is made if it is not
        there. `from_archive("hf://owner/name")` loads it again.

        Args:
            address: `hf://owner/name`.
            license: of the weights, as the hub spells it, such as "apache-2.0"; None
                keeps the one that the card there names, if any.
            private: whether a new repository is private; None is the hub's default.
            overwrite: whether a repository with another model or other files may get
                the commit, too; files of other names stay.
            metrics: COCO's numbers by name for the card, as `evaluate` of a
                `Predictor` returns them.

        Returns:
            string, the address of the commit.

        Raises:
            ValueError: If `address` is not one of a whole repository.
            FileExistsError: If the repository has something else.
            OSError: If this login may not do it, or the hub cannot be reached.
            RuntimeError: If it is to be private and is there and public.
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
    """Whether "auto" stands where it may, and there are boxes to fit to."""
    expected = "'auto' or None (numbers: `anchor_scale`, `aspect_ratios`, `num_scales`)"
    check_argument(anchors in (None, "auto"), "anchors", anchors, expected)
    if dataset is None and (image_size == "auto" or anchors == "auto"):
        raise InvalidValueError(
            "'auto' is fitted to boxes: pass the dataset to train on, as in "
            f"`from_preset({name!r}, dataset=train, image_size='auto')`."
        )


def _checked(class_names):
    if class_names is None:
        return None
    return checked_class_names(class_names, "`class_names`")


def _segmentation_class_names(names, source, overrides):
    """The names of the classes of pixels; sets their number in the overrides."""
    heads = overrides.get("heads", ((source and source.config) or {}).get("heads", ()))
    if "segmentation" not in heads or names is None:
        return None
    names = checked_class_names(names, "`seg_class_names`")
    overrides.setdefault("seg_num_classes", len(names))
    return names


def _fitted(name, dataset, fits_anchors, overrides):
    """The overrides of a config, with numbers in the place of "auto"."""
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
