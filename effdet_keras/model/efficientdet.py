"""`EfficientDet`, the `keras.Model`: assemble, train, detect, save."""

from __future__ import annotations

import functools
import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from effdet_keras._internal.backend import default_jit_compile
from effdet_keras._internal.extras import extra
from effdet_keras._internal.hugging_face import parse_hub_address
from effdet_keras.data.anchor_fit import fitted_anchors, fitted_image_size
from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.data.record import check_seg_class_names
from effdet_keras.detect.detect import ScoreThreshold, detect
from effdet_keras.detect.detections import Detections
from effdet_keras.detect.postprocess import Postprocess, finished_outputs
from effdet_keras.errors import InvalidTypeError, InvalidValueError
from effdet_keras.evaluate.thresholds import ScoreSettings
from effdet_keras.export.check import ExportReport
from effdet_keras.export.export_model import export_model
from effdet_keras.hub.export import export_hub_module
from effdet_keras.hub.features import HubFeatures  # noqa: F401 (for saved models)
from effdet_keras.model.anchors import anchors_of
from effdet_keras.model.config import EfficientDetConfig
from effdet_keras.model.network import build_network
from effdet_keras.train.trainer import Trainer
from effdet_keras.weights.archive import load_archive, write_archive
from effdet_keras.weights.assign import LoadReport
from effdet_keras.weights.checkpoint_files import BEST_FILE
from effdet_keras.weights.export_checkpoint import check_own_network, export_checkpoint
from effdet_keras.weights.identify import num_classes_of
from effdet_keras.weights.pretrained import (
    config_for_weights,
    load_source,
    load_to_resume,
)
from effdet_keras.weights.read_weights import read_weights, with_class_names

# It is in the files of models. Its own file does without Keras, as a `Predictor` does.
keras.saving.register_keras_serializable(package="effdet_keras")(Postprocess)


@keras.saving.register_keras_serializable(package="effdet_keras")
class EfficientDet(Trainer, keras.Model):
    """EfficientDet (https://arxiv.org/abs/1911.09070) as a Keras model.

    Images go in as pixels 0-255, RGB; mean and standard deviation are the
    model's own.

    Making a model tells glibc, where there is one, to keep memory for its large
    tensors (`effdet_keras/_internal/allocator.py`), unless a `MALLOC_` variable in
    the environment says how to.

    Args:
        config: `EfficientDetConfig` (or its `to_dict()`); None for D0.
        class_names: sequence of strings, one per label, or None.
        category_ids: sequence of ints, the id of each label in the annotation
            files, or None; then label `i` has id `i + 1`. `fit` takes names and ids
            from the dataset where they are None.
        postprocess: `Postprocess`, how `predict` and `detect` choose boxes.
        dtype: dtype policy, such as "mixed_bfloat16"; None for Keras' own.
        features: Keras layer in the place of all but the last layer of each head,
            as `from_hub` gives; see `model/network.py`. None for EfficientDet's.
        score_settings: `ScoreSettings` of an evaluation of these weights, or what its
            `to_dict` returned; None for none. It is an attribute that can be set,
            saved and exported with the model. Training, and loading weights, make it
            None: the scores are then others.
        seg_class_names: sequence of strings, one per class of pixels of the
            segmentation head, or None. `fit` takes those of the dataset where it is
            None.
        quantization: dict of arguments of `quantize_aware`, or None.
        **kwargs: `name` and `trainable` of `keras.Model`.

    Call arguments:
        images: uint8 or float tensor `[B, H, W, 3]`, pixels 0-255, in the size
            of `config.image_size`.
        training: bool.

    Returns:
        Dict of the raw outputs, float32: `class_logits` `[B, N, C]` and
        `box_deltas` `[B, N, 4]` for the `N` rows of `model.anchors`; of a segmentation
        head `segmentation_logits` `[B, h, w, K]`.
        `predict` returns `boxes` `[B, D, 4]` (`yxyx`, pixels of the input),
        `scores` `[B, D]`, `labels` `[B, D]` and `num_detections` `[B]`, and of a
        segmentation head `class_map` `[B, H, W]`, the class of each pixel.

    Raises:
        ValueError: If names or ids do not fit `config.num_classes`, or an
            image is not of the size of the input.

    Example:
        >>> model = EfficientDet.from_preset(
        ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2
        ... )
        >>> outputs = model(np.zeros((1, 64, 64, 3), "uint8"))
        >>> tuple(outputs["class_logits"].shape), model.anchors.shape
        ((1, 765, 2), (765, 4))
    """

    def __init__(
        self,
        config: EfficientDetConfig | Mapping[str, Any] | None = None,
        class_names: Sequence[str] | None = None,
        category_ids: Sequence[int] | None = None,
        postprocess: Postprocess | None = None,
        dtype: str | keras.DTypePolicy | None = None,
        features: keras.layers.Layer | None = None,
        score_settings: ScoreSettings | Mapping[str, Any] | None = None,
        seg_class_names: Sequence[str] | None = None,
        quantization: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(config, EfficientDetConfig):
            config = EfficientDetConfig(**(config or {}))
        class_names = _one_per_class("class_names", class_names, config.num_classes)
        category_ids = _one_per_class("category_ids", category_ids, config.num_classes)
        seg_class_names = _one_per_class(
            "seg_class_names", seg_class_names, config.seg_num_classes
        )
        kwargs.setdefault("name", config.name)
        images, outputs = build_network(config, dtype, features)
        super().__init__(inputs=images, outputs=outputs, **kwargs)
        if dtype is not None:
            self.dtype_policy = dtype  # tells `compile` to scale a float16 loss
        self.config = config
        self.class_names = class_names
        self.category_ids = category_ids
        self.seg_class_names = seg_class_names
        self.postprocess = postprocess or Postprocess()
        self.features = features
        if isinstance(score_settings, Mapping):
            score_settings = ScoreSettings.from_dict(score_settings)
        self.score_settings = score_settings
        self._network_dtype = dtype
        self.anchors = anchors_of(config)
        # Keras' own "auto" is XLA, also on CPUs, where it is many times slower.
        self.jit_compile = default_jit_compile()
        if quantization is not None:
            self.quantize_aware(**quantization)

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
        averages: bool = True,
        skip_mismatch: bool = False,
        pipeline_config: str | os.PathLike | None = None,
        verbose: int = 1,
        **config_overrides: Any,
    ) -> EfficientDet:
        """A published model by name, with random weights or weights of a file.

        Args:
            name: string, "efficientdet-d0" ... "-d7", "-d7x",
                "efficientdet-lite0" ... "-lite4", "-lite3x".
            weights: None; a key of the published weights, "coco" and, for some
                models, "coco-advprop", "coco-640" and "imagenet" (the backbone;
                `effdet_keras.list_presets()` shows all); or a path or URL, see
                `load_pretrained`.
            num_classes: int; by default the number of `class_names`, or that of
                the weights, or 90.
            class_names: sequence of strings, one per label. By default those of
                the weights, where the number is the same. Where the weights
                have other classes, the last layer of the class head starts new
                but for the classes that both name.
            category_ids: sequence of ints, one per label; see `EfficientDet`.
            seg_class_names: sequence of strings, one per class of pixels, for
                `heads=("object_detection", "segmentation")`.
            dataset: `effdet_keras.data.DetectionDataset` to train on, which gives
                `class_names`, `category_ids` and `seg_class_names` where they are
                None, and what is to be "auto".
            anchors: "auto" fits `anchor_scale` and `aspect_ratios` to the boxes of
                `dataset`, unless `weights` are a detector's, whose heads know their
                anchors. None keeps the model's.
            averages, skip_mismatch, pipeline_config, verbose: see `load_pretrained`.
            **config_overrides: fields of `EfficientDetConfig`. `image_size="auto"` is
                the smallest, up to the model's own, at which nine boxes of ten in
                `dataset`, and half of each class, are 24 pixels or larger, in the
                shape of the images. What the weights were trained with,
                such as the normalisation of AdvProp's, is taken from them if it is
                not given here.

        Returns:
            `EfficientDet`.

        Raises:
            ValueError: If the name is unknown, a field is wrong, the counts do
                not agree, the weights do not fit, or something is "auto" without a
                `dataset`.
            FileNotFoundError: If there is no file of weights.

        Example:
            >>> model = EfficientDet.from_preset("efficientdet-lite0", num_classes=3)
            >>> model.config.image_size, model.config.num_classes
            ((320, 320), 3)
        """
        # What is wrong in any case, before a download.
        EfficientDetConfig.from_name(name)
        _check_auto(name, dataset, anchors, config_overrides.get("image_size"))
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
        is_of_dataset = dataset is not None and seg_class_names is None
        seg_class_names = _of_segmentation(
            dataset.seg_class_names if is_of_dataset else seg_class_names,
            source,
            config_overrides,
            is_of_dataset=is_of_dataset,
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
        told = None if source is None else source.postprocess
        model = cls(
            config,
            class_names=class_names,
            category_ids=category_ids,
            seg_class_names=seg_class_names if config.has_segmentation else None,
            postprocess=told and Postprocess(**told),
        )
        if source is not None:
            load_source(model, source, skip_mismatch=skip_mismatch, verbose=verbose)
        return model

    @classmethod
    def from_pipeline_config(
        cls,
        path: str | os.PathLike,
        weights: str | os.PathLike | None = None,
        class_names: Sequence[str] | None = None,
        category_ids: Sequence[int] | None = None,
        *,
        averages: bool = True,
        skip_mismatch: bool = False,
        ignore_unknown: bool = False,
        verbose: int = 1,
        **config_overrides: Any,
    ) -> EfficientDet:
        """A model, compiled, from a `pipeline.config` of the Object Detection API.

        Network, image size, resizing, anchors, scales of box codes, classes and
        postprocess are those of the file, and so are losses, optimizer and schedule.
        What has no place here is printed. Classes have the names of the file's label
        map, where it is on this machine or beside the file; 90 without names
        are COCO's.

        `ek.fine_tune(data, pipeline_config=path)` trains with all of it, the batch size
        and augmentation too.

        Args:
            path: path of the file.
            weights: None for random weights; or a key, path or URL, see
                `load_pretrained`. Last layers that were trained with another order of
                anchors or other scales of codes are converted.
            class_names, category_ids: sequences with an entry per label, in the place
                of the file's. Their number may be another one: the last layer of the
                class head then starts new, but for the classes that both name.
            averages, skip_mismatch: see `load_pretrained`.
            ignore_unknown: bool, whether to make the model although the file asks for
                something that changes detections and is not done here. Without it that
                is an error, which lists all of it.
            verbose: 0 or 1, whether to print what was loaded, and what has no place.
            **config_overrides: fields of `EfficientDetConfig`, in the place of the
                file's.

        Returns:
            `EfficientDet`.

        Raises:
            OSError: If there is no such file.
            ValueError: If it is the config of another kind of model, or a field has a
                wrong value, or the weights do not fit.

        Example:
            >>> import pathlib, tempfile
            >>> path = pathlib.Path(tempfile.mkdtemp(), "pipeline.config")
            >>> _ = path.write_text('''model { ssd {
            ...   num_classes: 2
            ...   image_resizer { keep_aspect_ratio_resizer {
            ...     min_dimension: 128 max_dimension: 128 pad_to_max_dimension: true } }
            ...   feature_extractor {
            ...     type: "ssd_efficientnet-b0_bifpn_keras"
            ...     conv_hyperparams { activation: SWISH }
            ...     bifpn { num_iterations: 1 num_filters: 64 } }
            ...   box_predictor { weight_shared_convolutional_box_predictor {
            ...     depth: 64 num_layers_before_predictor: 1 use_depthwise: true
            ...     conv_hyperparams { activation: SWISH } } }
            ...   post_processing { score_converter: SIGMOID }
            ... } }
            ... train_config { optimizer { adam_optimizer { learning_rate {
            ...   constant_learning_rate { learning_rate: 0.001 } } } } }''')
            >>> model = EfficientDet.from_pipeline_config(path, verbose=0)
            >>> model.config.image_size, model.config.box_scales
            ((128, 128), (10.0, 10.0, 5.0, 5.0))
        """
        return extra("tfod.model:model_of_pipeline")(
            cls,
            path,
            weights,
            class_names=class_names,
            category_ids=category_ids,
            averages=averages,
            skip_mismatch=skip_mismatch,
            ignore_unknown=ignore_unknown,
            verbose=verbose,
            overrides=config_overrides,
        )

    @classmethod
    def from_hub(
        cls,
        handle: str | os.PathLike,
        num_classes: int | None = None,
        class_names: Sequence[str] | None = None,
        category_ids: Sequence[int] | None = None,
        *,
        trainable: bool = True,
        model_name: str | None = None,
        verbose: int = 1,
        **config_overrides: Any,
    ) -> Any:
        """A model from a TF-Hub module: with new last layers, to fine-tune.

        A module that is an EfficientDet (by the names of its variables, and by
        what it computes) becomes this package's network with its weights; the
        module is not needed again. Of any other feature module the graph itself
        is used, on TensorFlow; a saved model then needs the module on the machine
        that loads it. Both train, freeze, save and export alike.

        Needs tensorflow_hub, which finds, fetches and caches
        (`TFHUB_CACHE_DIR`). A module is a program: load those you trust.

        Args:
            handle: http(s) address or folder of a feature module in google/automl's
                format, as `export_hub_module` writes it; or of a detector.
            num_classes: int; by default the number of `class_names`.
            class_names: sequence of strings, one per label.
            category_ids: sequence of ints, one per label; see `EfficientDet`.
            trainable: bool. False freezes all but the new layers, see `freeze`;
                `unfreeze()` undoes it.
            model_name: string, the published model whose image size, anchors and
                normalisation the module goes with, such as "efficientdet-lite0". By
                default what is recognised, else "efficientdet-d0".
            verbose: 0 or 1, whether to print what the module is.
            **config_overrides: fields of `EfficientDetConfig`.

        Returns:
            `EfficientDet`; of a detector module a `HubDetector`, which can `detect`
            and nothing else.

        Raises:
            OSError: If there is nothing at the address or path.
            ValueError: If the module has another format, or its levels do not fit
                the config; the message tells what was found.
            ImportError: If tensorflow_hub cannot be imported.

        Example:
            >>> EfficientDet.from_hub("nowhere", num_classes=2)
            Traceback (most recent call last):
                ...
            FileNotFoundError: There is no TF-Hub module 'nowhere': ...

            `export_hub_module` has one that finds its module.
        """
        from effdet_keras.hub.from_hub import from_hub  # it makes models of this class

        return from_hub(
            cls,
            handle,
            num_classes=num_classes,
            class_names=class_names,
            category_ids=category_ids,
            trainable=trainable,
            model_name=model_name,
            verbose=verbose,
            overrides=config_overrides,
        )

    def load_pretrained(
        self,
        source: str | os.PathLike,
        *,
        averages: bool = True,
        skip_mismatch: bool = False,
        checkpoint_type: str | None = None,
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
                fit; the message names the array, both shapes and the cure.
            OSError: If there is no such file, or it cannot be fetched.
            ImportError: If a package is missing that reads this kind.

        Example:
            >>> import tempfile
            >>> small = {"image_size": 64, "max_level": 6}
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
        check_own_network(self, "load weights of other files", "load_weights")
        source = read_weights(
            source,
            self.config.name,
            averages=averages,
            sha256=sha256,
            pipeline_config=pipeline_config,
            verbose=verbose,
        )
        if class_names is not None:
            source = with_class_names(source, class_names)
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
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", image_size=64, num_classes=2, max_level=6)
            >>> prefix = f"{tempfile.mkdtemp()}/model"
            >>> model.export_checkpoint(prefix, format="automl-tf1")
            >>> model.load_pretrained(prefix, verbose=0).num_averages > 0
            True
        """
        export_checkpoint(self, path, format)

    @classmethod
    def from_archive(
        cls, path: str | os.PathLike, resume: bool = False
    ) -> EfficientDet:
        """The model that `CheckpointArchive` or `model.save` wrote.

        Args:
            path: path of the `.keras` file, or of the folder of an archive or a run
                (its best checkpoint, or with `resume` its last; if that is damaged, the
                newest in the folder that is whole, and a warning says so); or the
                address of one of them, such as `s3://bucket/run`
                (docs/remote_files.md).
            resume: bool. Either way the model has the moving averages in the place of
                its weights, where there were any. True keeps the weights of training
                beside them: the next `fit` goes on from these, bit by bit. False
                makes the averages its only weights, for a new training.

        Returns:
            `EfficientDet`.

        Raises:
            FileNotFoundError, ValueError: If there is no such file, or it is
                damaged or of another kind.
        """
        model = load_to_resume(path) if resume else load_archive(path)
        if not hasattr(model, "detect_step"):
            raise InvalidValueError(
                f"'{path}' holds a `{type(model).__name__}`, not an `EfficientDet`. "
                "Load it with `keras.saving.load_model`."
            )
        return model

    def with_activation(self, name: str) -> EfficientDet:
        """Another model with the same weights, and another activation.

        Phones compute "hswish" and "relu6" faster than "swish". The weights know
        nothing of the new one: `effdet_keras.distill(model, other, train)` teaches it.
        The other one is compiled as this one is, with a tenth of the learning rate that
        it was trained with. Batch norm keeps its statistics.

        Args:
            name: string, one of `effdet_keras.model.config.ACTIVATIONS`.

        Returns:
            `EfficientDet`. This one stays as it is.

        Raises:
            ValueError: If there is no such activation, or the model has the layers of
                a TF-Hub module.

        Example:
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2)
            >>> model.with_activation("hswish").config.activation
            'hswish'
        """
        if self.features is not None:
            raise InvalidValueError(
                "The activations of a TF-Hub module are inside it. Take a model of "
                "`from_preset`."
            )
        config = self.config.replace(activation=name)
        other = type(self).from_config(
            {**self.get_config(), "config": config.to_dict()}
        )
        other.set_weights(self.get_weights())
        other.pretrained = self.pretrained
        if self.settings is not None:
            other.compile_from_config(self.refining_config())
        return other

    def export(
        self,
        path: str | os.PathLike,
        format: str | None = None,
        *,
        target: str | None = None,
        images: Any = None,
        evaluate: DetectionDataset | None = None,
        verbose: int = 1,
        **options: Any,
    ) -> ExportReport:
        """Writes the model as a file of another runtime, checked in that runtime.

        The export has the moving averages as its weights, where there are any. The
        written file and this model then run on the same images; the result is
        printed, and stored as `export_report.json` in the folder, or beside a file
        (`pets.tflite.export_report.json`). If they disagree, nothing is written. An
        earlier export at `path` stays whole until the new one is complete.

        Args:
            path: what to write: a folder for "saved_model", else a file that ends
                in `.tflite`, `.onnx` or `.xml` (OpenVINO).
            format: "saved_model", "litert", "onnx" or "openvino"; None goes by the
                end of `path`.
            target: in the place of a format, where the model will run: "mediapipe",
                "coral", "frigate", "litert-gpu", "tf-serving", "triton" or "browser".
                `path` is then a folder, which gets the model in the form that the
                target takes, and what else it needs (docs/export_targets.md).
            images: images to check with, whatever `detect` takes; None for drawn
                ones.
            evaluate: `effdet_keras.data.DetectionDataset`, on which to compare the
                AP of this model with that of its export; None for no dataset.
            verbose: 0 or 1, whether to print the report.
            **options: of the format, such as `precision="int8"` and `calibration`
                of "litert", `outputs="raw"` of all but "saved_model", `batch_size`
                of "onnx", `names="tfod"` of "saved_model". All are in docs/export.md
                and the pages it leads to.

        Returns:
            `ExportReport`.

        Raises:
            ValueError: If the export does not compute what the model does.
            FileExistsError: If `path` is a folder that is not an export.
            RuntimeError: If Keras runs on another backend than TensorFlow.
            ImportError: If a package is missing that writes or runs the format.

        Example:
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2)
            >>> model.export("out/model.pb")
            Traceback (most recent call last):
                ...
            effdet_keras.errors.InvalidValueError: `format` must be one of ...

            docs/export.md has those that write.
        """
        return export_model(
            self,
            path,
            format,
            target=target,
            images=images,
            evaluate=evaluate,
            verbose=verbose,
            **options,
        )

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
        (`README.md`) become one commit. A repository that is not there is made; one
        that has a model of the same configuration and classes gets a new commit,
        and the older ones stay in its history. `from_archive("hf://owner/name")` loads
        it again. Needs `pip install "effdet-keras[huggingface]"`.

        Args:
            address: `hf://owner/name`.
            license: of the weights, as the hub spells it, such as "apache-2.0"; None
                keeps the one that the card there names, if any.
            private: whether a new repository is private; None is the hub's default.
            overwrite: whether a repository with another model or other files may get
                the commit, too. The model files that are in it, such as a lone
                `.tflite`, are deleted in that commit; all others stay.
            metrics: COCO's numbers by name for the card, as `evaluate` of a
                `Predictor` returns them.

        Returns:
            string, the address of the commit.

        Raises:
            ValueError: If `address` is not one of a whole repository.
            FileExistsError: If the repository has something else.
            PermissionError: If this login may not do it.
            OSError: If the hub cannot be reached.
            RuntimeError: If it is to be private and is there and public.
            ImportError: If the extra is not installed.

        Example:
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2)
            >>> model.push_to_hub("cats")
            Traceback (most recent call last):
                ...
            effdet_keras.errors.InvalidValueError: An address of the Hugging Face ...
        """
        parse_hub_address(address)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, BEST_FILE)
            write_archive(self, path)
            return extra("sharing.push:push_archive")(
                path,
                address,
                license=license,
                private=private,
                overwrite=overwrite,
                numbers=metrics,
            )

    def export_hub_module(self, path: str | os.PathLike) -> None:
        """Writes the network without the last layers as a TF-Hub feature module.

        That is a folder that `from_hub`, `tensorflow_hub.load`, `hub.KerasLayer`
        and google/automl's trainer (`hub_module_url`) load, without this package.
        It is called with normalised float32 images of `config.image_size` and
        `training`, and returns a list of class features and a list of box
        features. It holds the moving averages where there are any; what is frozen
        here is free there. The folder appears once it is complete.

        Args:
            path: folder to write. It must not exist.

        Raises:
            FileExistsError: If `path` exists.
            RuntimeError: If Keras runs on another backend than TensorFlow.

        Example:
            >>> import tempfile
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-lite0", image_size=64, num_classes=2, max_level=5,
            ...     fpn_cell_repeats=1, head_repeats=1)
            >>> path = f"{tempfile.mkdtemp()}/lite0"
            >>> model.export_hub_module(path)
            >>> other = EfficientDet.from_hub(path, class_names=["cat"], verbose=0)
            >>> other.config.image_size, other.num_classes
            ((64, 64), 1)
        """
        export_hub_module(self, path)

    def __call__(self, images: Any, *args: Any, **kwargs: Any) -> Any:
        size = tuple(getattr(images, "shape", ()))[1:]
        if size and size != (*self.config.image_size, 3) and None not in size:
            raise InvalidValueError(
                f"`{self.name}` takes images of shape "
                f"(batch, {', '.join(map(str, self.config.image_size))}, 3). "
                f"Received: images.shape={tuple(images.shape)}. Give `image_size` to "
                "`batches` or `from_preset` so that they agree; `detect` takes "
                "images of any size."
            )
        return super().__call__(images, *args, **kwargs)

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        run = functools.partial(super().call, inputs, training=training, mask=mask)
        if self.quantization is None:
            return run()
        return self.quantization.call(run, bool(training))

    @property
    def num_classes(self) -> int:
        """Number of labels."""
        return self.config.num_classes

    @property
    def postprocess(self) -> Postprocess:
        """How `predict` and `detect` choose boxes; another one counts from now on."""
        return self._postprocess

    @postprocess.setter
    def postprocess(self, postprocess: Postprocess) -> None:
        self._postprocess = postprocess
        self.predict_function = None  # its graph has the one of before

    @property
    def score_settings(self) -> ScoreSettings | None:
        """Thresholds and temperature for `detect`, or None where none were chosen."""
        return self._score_settings

    @score_settings.setter
    def score_settings(self, settings: ScoreSettings | None) -> None:
        if settings is not None:
            if not isinstance(settings, ScoreSettings):
                raise InvalidTypeError(
                    "`score_settings` must be `ek.metrics.ScoreSettings`, such as "
                    "`evaluation.score_settings(model.class_names)`, or None. "
                    f"Received: {type(settings).__name__}"
                )
            _one_per_class("thresholds", settings.thresholds, self.num_classes)
        self._score_settings = settings

    def detect_outputs(
        self, outputs: dict[str, Any], content_sizes: Any = None
    ) -> dict[str, Any]:
        """Network outputs as detections, in pixels of the input; see `predict`."""
        return finished_outputs(
            outputs,
            self.postprocess,
            self.anchors,
            self.config,
            content_sizes=content_sizes,
        )

    def detect_step(self, images: Any) -> dict[str, Any]:
        """What `predict` compiles: the network, then the postprocess."""
        return self.detect_outputs(self(images, training=False))

    def detect(
        self,
        images: Any,
        score_threshold: ScoreThreshold = 0.3,
        *,
        batch_size: int = 8,
        verbose: int | str = "auto",
        calibrated: bool = False,
    ) -> Detections | list[Detections]:
        """Finds objects in images of any size.

        Images are letterboxed into the network's input as in evaluation, and
        boxes come back in pixels of the original.

        Args:
            images: path of an image or of a folder of images; array
                `[H, W, 3]`, `[H, W]` or `[H, W, 4]` of pixels 0-255; or a list
                of any of these, or an array `[B, H, W, 3]`.
            score_threshold: float, the lowest score to keep; or "best", for each
                class the threshold that is in `score_settings`.
            batch_size: int, images at once.
            verbose: 0, 1 or "auto": a progress bar, by default where there is
                more than one batch.
            calibrated: bool, whether scores get the temperature of `score_settings`,
                which makes them more like the share of detections that is right.
                A number in `score_threshold` is then compared with calibrated scores.
                The thresholds of "best" were chosen before the temperature and are
                compared so: `calibrated` changes the scores, not what is found.

        Returns:
            `Detections` for one image, else a list of them.

        Raises:
            FileNotFoundError: If an image or folder does not exist.
            ValueError, TypeError: If something is not an image.
            RuntimeError: If thresholds or a temperature are asked for, and the model
                has none.

        Example:
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", image_size=64, max_level=6, class_names=["cat"]
            ... )
            >>> image = np.full((48, 100, 3), 127, "uint8")
            >>> len(model.detect(image, score_threshold=0.9))
            0
        """
        return detect(
            self,
            images,
            score_threshold=score_threshold,
            batch_size=batch_size,
            verbose=verbose,
            calibrated=calibrated,
        )

    def get_config(self) -> dict[str, Any]:
        policy, settings = self._network_dtype, self.score_settings
        return {
            "name": self.name,
            "trainable": self.trainable,
            "config": self.config.to_dict(),
            "class_names": self.class_names,
            "category_ids": self.category_ids,
            "postprocess": keras.saving.serialize_keras_object(self.postprocess),
            "features": keras.saving.serialize_keras_object(self.features),
            "score_settings": settings.to_dict() if settings is not None else None,
            **self._config_of_segmentation(),
            **self._config_of_quantization(),
            "dtype": keras.saving.serialize_keras_object(policy) if policy else None,
        }

    def _config_of_segmentation(self):
        """Nothing without the head: such files are as they were before."""
        if not self.config.has_segmentation:
            return {}
        return {"seg_class_names": self.seg_class_names}

    def _config_of_quantization(self):
        if self.quantization is None:
            return {}
        return {"quantization": self.quantization.get_config()}

    @classmethod
    def from_config(
        cls, config: dict, custom_objects: dict | None = None
    ) -> EfficientDet:
        return cls(**keras.saving.deserialize_keras_object(config, custom_objects))


def _check_auto(name, dataset, anchors, image_size):
    """Whether "auto" stands where it may, and there are boxes to fit to."""
    if anchors not in (None, "auto"):
        raise InvalidValueError(
            "`anchors` must be 'auto' or None; numbers go to `anchor_scale`, "
            f"`aspect_ratios` and `num_scales`. Received: anchors={anchors!r}"
        )
    if dataset is None and (image_size == "auto" or anchors == "auto"):
        raise InvalidValueError(
            "'auto' is fitted to boxes: pass the dataset to train on, as in "
            f"`from_preset({name!r}, dataset=train, image_size='auto')`."
        )


def _of_segmentation(names, source, overrides, *, is_of_dataset):
    """The names of the classes of pixels; sets their number in the overrides."""
    heads = overrides.get("heads", ((source and source.config) or {}).get("heads", ()))
    if "segmentation" not in heads or names is None:
        return None
    names = check_seg_class_names(names)
    count = overrides.setdefault("seg_num_classes", len(names))
    if is_of_dataset and count > len(names):
        return None  # more outputs than the dataset has names for
    return names


def _fitted(name, dataset, fits_anchors, overrides):
    """The overrides of a config, with numbers in the place of "auto"."""
    overrides = dict(overrides)
    if overrides.get("image_size") == "auto":
        del overrides["image_size"]
        config = EfficientDetConfig.from_name(name, **overrides)
        overrides["image_size"] = fitted_image_size(dataset, config)
    if fits_anchors:
        config = EfficientDetConfig.from_name(name, **overrides)
        overrides |= fitted_anchors(dataset, config)
    return overrides


def _one_per_class(field, values, num_classes):
    if values is None:
        return None
    values = tuple(values)
    if len(values) != num_classes:
        raise InvalidValueError(
            f"`{field}` must have one entry for each of the {num_classes} classes. "
            f"Received: {len(values)} entries, {field}={values[:5]!r}..."
        )
    return values
