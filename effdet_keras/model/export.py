"""What else can be done with a trained model: freeze, quantize, export, describe."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import keras

from effdet_keras.data.dataset import DetectionDataset
from effdet_keras.errors import InvalidStateError, require
from effdet_keras.network.build import copied
from effdet_keras.train import freezing
from effdet_keras.train.compile_config import (
    compile_config,
    compile_from_config,
    refining_config,
)

if TYPE_CHECKING:
    from effdet_keras.export.check import ExportReport


class ModelExports:
    """What `EfficientDet` can do beyond training and detection, as a mix-in."""

    def freeze(self, what: str, batch_norm: bool = True) -> None:
        """Stops some weights from training, and lets all others train.

        A compiled model is compiled again: optimizer and averages start again.

        Args:
            what: "backbone"; "backbone+fpn"; "all-but-new-classes", which trains the
                outputs of classes that the loaded detector did not have, and keeps
                boxes and scores of all others (docs/add_a_class.md); or a regular
                expression that the path of a weight must match from its start, as the
                reference's `var_freeze_expr` does:
                "(efficientnet|fpn_cells|resample_p6)".
            batch_norm: bool, whether batch norms whose scale and offset are frozen
                keep their statistics and normalise with them, in training as well.

        Raises:
            ValueError: If nothing matches, or nothing is left to train; or if no class
                is new, or no detector was loaded that had the others.

        Example:
            >>> from effdet_keras.model.efficientdet import EfficientDet
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2)
            >>> model.freeze("backbone+fpn")
            >>> len(model.trainable_variables) < len(model.weights) / 3
            True
        """
        freezing.freeze(self, what, batch_norm)
        self._compile_again()

    def unfreeze(self) -> None:
        """Lets all weights train again; see `freeze`."""
        freezing.unfreeze(self)
        self._compile_again()

    def _compile_again(self):
        """Starts optimizer and averages again.

        By the config, because an optimizer has been built for what trained.
        """
        if self.settings is not None:
            config = compile_config(self)
            recipe = config["recipe"] | {"freeze": None}
            self.compile_from_config({**config, "recipe": recipe})

    def quantize_aware(
        self,
        delay: int = 0,
        *,
        batch_norm_steps: int = 0,
        range_steps: int | None = None,
    ) -> Self:
        """Lets the next trainings learn to live with the rounding of an int8 file.

        From now on `fit` computes in 8 bits where LiteRT will; and so do `detect` and
        `evaluate` after the first step that did. An export in int8 then needs no
        `calibration`; all others are those of the float network. Start from a trained
        model (docs/quantization.md); a compiled one is compiled again, with a tenth of
        the learning rate.

        Args:
            delay: int, steps of training before the first that rounds: the
                `quant_delay` of the TF Object Detection API's `graph_rewriter`.
            batch_norm_steps: int, steps of training in which batch norm takes the
                statistics of the batch; afterwards the moving ones, as the file does.
            range_steps: int, steps of training in which the ranges move; None for all.

        Returns:
            The model itself.

        Raises:
            ValueError: If a number is wrong, or the model has layers of a TF-Hub
                module, mixed precision, or an activation that is not "swish", "hswish",
                "relu" or "relu6".
            RuntimeError: If Keras runs on another backend than TensorFlow.
        """
        from effdet_keras.extras.quantization import Quantization

        rule = "`quantize_aware` changes what old classes give: call `unfreeze()` first"
        require(not self.frozen_labels, rule, frozen_labels=self.frozen_labels)

        with self.variable_scope():
            self.quantization = Quantization(self, delay, batch_norm_steps, range_steps)
        self.forget_functions()
        if self.settings is not None:
            self.compile_from_config(refining_config(self))
        return self

    def with_activation(self, name: str) -> Self:
        """Another model with the same weights, and another activation.

        Phones compute "hswish" and "relu6" faster than "swish". The weights know
        nothing of the new one: `effdet_keras.distill(model, other, train)` teaches it.
        The other model is compiled as this one is, with a tenth of the learning rate
        that it was trained with.

        Args:
            name: string, one of `effdet_keras.network.config.ACTIVATIONS`.

        Returns:
            `EfficientDet`. This one stays as it is.

        Raises:
            ValueError: If there is no such activation, or the model has the layers of
                a TF-Hub module.

        Example:
            >>> from effdet_keras.model.efficientdet import EfficientDet
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-d0", image_size=64, max_level=6, num_classes=2)
            >>> model.with_activation("hswish").config.activation
            'hswish'
        """
        rule = (
            "with_activation() does not support models with a TF-Hub module, whose "
            "activations are fixed. Make the model with `EfficientDet.from_preset`"
        )
        require(self.features is None, rule, features=self.features)
        other = copied(self, {"activation": name, "backbone_activation": None})
        if self.settings is not None:
            other.compile_from_config(refining_config(self))
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

        The written file and this model run on the same images; the result is printed,
        and stored as `export_report.json` in the folder or beside the file. If they
        disagree, nothing is written, and an earlier export at `path` stays.

        Args:
            path: what to write: a folder for "saved_model", else a file that ends
                in `.tflite`, `.onnx`, `.xml` (OpenVINO) or `.pt2` (torch).
            format: "saved_model", "litert", "onnx", "openvino" or "torch"; None goes
                by the end of `path`.
            target: in the place of a format, where the model will run: "mediapipe",
                "coral", "litert-npu", "mnn" and others (docs/export_targets.md).
                `path` is then a folder.
            images: images to check with, whatever `detect` takes, or a
                `effdet_keras.data.DetectionDataset`, of which four are taken; None for
                drawn ones.
            evaluate: `effdet_keras.data.DetectionDataset`, on which to compare the
                AP of this model with that of its export; None for no dataset.
            verbose: 0 or 1, whether to print the report.
            **options: of the format or target, such as `precision="int8"` and
                `calibration` (docs/export.md and the pages it leads to).

        Raises:
            ValueError: If the export does not compute what the model does.
            FileExistsError: If `path` is a folder that is not an export.
            RuntimeError: If Keras runs on another backend than TensorFlow, and the
                format, target or an option needs that (docs/export.md).
            ImportError: If a package is missing that writes or runs the format.
        """
        from effdet_keras.export.export_model import export_model

        call = {"target": target, "images": images, "evaluate": evaluate}
        return export_model(self, path, format, **call, verbose=verbose, **options)

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

        A module that is an EfficientDet becomes this package's network with its
        weights. Of any other feature module the graph itself is used, on TensorFlow; a
        saved model then needs the module on the machine that loads it. A module is a
        program: load those you trust.

        Args:
            handle: http(s) address or folder of a feature module in google/automl's
                format, as `export_hub_module` writes it; or of a detector.
            num_classes, class_names, category_ids: see `EfficientDet.from_preset`.
            trainable: bool. False freezes all but the new layers, see `freeze`.
            model_name: string, the published model whose image size, anchors and
                normalisation the module goes with. By default what is recognised, else
                "efficientdet-d0".
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
        """
        from effdet_keras.hub.from_hub import from_hub

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

    def export_hub_module(self, path: str | os.PathLike) -> None:
        """Writes the network without the last layers as a TF-Hub feature module.

        That is a folder that `from_hub`, `tensorflow_hub.load`, `hub.KerasLayer`
        and google/automl's trainer (`hub_module_url`) load, without this package.
        It is called with normalised float32 images of `config.image_size` and
        `training`, and returns a list of class features and a list of box
        features. It holds the moving averages where there are any; what is frozen
        here is free there.

        Args:
            path: folder to write. It must not exist.

        Raises:
            FileExistsError: If `path` exists.
            RuntimeError: If Keras runs on another backend than TensorFlow.

        Example:
            >>> import tempfile
            >>> from effdet_keras.model.efficientdet import EfficientDet
            >>> model = EfficientDet.from_preset(
            ...     "efficientdet-lite0", image_size=64, num_classes=2, max_level=5,
            ...     fpn_cell_repeats=1, head_repeats=1)
            >>> path = f"{tempfile.mkdtemp()}/lite0"
            >>> model.export_hub_module(path)
            >>> other = EfficientDet.from_hub(path, class_names=["cat"], verbose=0)
            >>> other.config.image_size, other.num_classes
            ((64, 64), 1)
        """
        from effdet_keras.hub.export import export_hub_module

        export_hub_module(self, path)

    # --- What files say of the model; `model/files.py` has the rest.

    def get_config(self) -> dict[str, Any]:
        policy, settings = self._network_dtype, self.score_settings
        config = {
            "name": self.name,
            "trainable": self.trainable,
            "config": self.config.to_dict(),
            "class_names": self.class_names,
            "category_ids": self.category_ids,
            "postprocess": keras.saving.serialize_keras_object(self.postprocess),
            "features": keras.saving.serialize_keras_object(self.features),
            "score_settings": settings.to_dict() if settings is not None else None,
            "dtype": keras.saving.serialize_keras_object(policy) if policy else None,
        }
        # Without these, files are as they were before there was either.
        if self.config.has_segmentation:
            config["seg_class_names"] = self.seg_class_names
        if self.quantization is not None:
            config["quantization"] = self.quantization.get_config()
        # How a model was compiled says it as well, and then it goes with the training.
        if self.settings is None and self.trainable:
            frozen = freezing.frozen_state(self)
            if any(frozen.values()):
                config["frozen"] = frozen
        return config

    @classmethod
    def from_config(cls, config: dict, custom_objects: dict | None = None) -> Self:
        config = keras.saving.deserialize_keras_object(config, custom_objects)
        frozen = config.pop("frozen", None)
        model = cls(**config)
        if frozen is not None:
            freezing.restore_frozen(model, frozen)
        return model

    def _run_through_graph(self, *args: Any, **kwargs: Any) -> Any:
        # Keras gives both where it clones, and would return a plain `Functional`.
        if {"operation_fn", "call_fn"} <= set(kwargs):
            raise InvalidStateError(
                "`keras.models.clone_model` copies layers, and the copy of an "
                "`EfficientDet` would be no detector, without `detect` and its own "
                "`fit`. For another one with new weights: "
                "`EfficientDet.from_config(model.get_config())`; then "
                "`copy.set_weights(model.get_weights())` for the same weights."
            )
        return super()._run_through_graph(*args, **kwargs)

    def get_compile_config(self) -> dict:
        return compile_config(self)

    def compile_from_config(self, config: dict) -> None:
        compile_from_config(self, config)
