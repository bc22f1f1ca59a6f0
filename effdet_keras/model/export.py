"""Methods of `EfficientDet` that freeze, quantize, export and serialize it."""

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
    """Adds methods to freeze, quantize, export and serialize, as a mix-in."""

    def freeze(self, what: str, batch_norm: bool = True) -> None:
        """Stops some weights from training, and lets all others train.

        A compiled model is compiled again, so that optimizer and averages start again.

        Args:
            what: "backbone"; "backbone+fpn"; "all-but-new-classes"; or a regular
                expression such as "(efficientnet|fpn_cells|resample_p6)". A weight is
                frozen if its path matches the expression from its start, as with the
                reference's `var_freeze_expr`. "all-but-new-classes" only trains the
                outputs of classes that the loaded detector did not have, and keeps
                boxes and scores of all other classes (docs/add_a_class.md).
            batch_norm: bool, whether batch norms whose scale and offset are frozen
                keep their statistics and normalize with them, also in training.

        Raises:
            ValueError: If nothing matches, or nothing is left to train; or, for
                "all-but-new-classes", if no class is new, or no detector with the other
                classes was loaded.

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
        """Makes all weights trainable again; see `freeze`.

        A compiled model is compiled again, so that optimizer and averages start again.
        """
        freezing.unfreeze(self)
        self._compile_again()

    def _compile_again(self):
        """Starts optimizer and averages again.

        It compiles from the config, because the old optimizer has been built for the
        weights that trained before.
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
        """Switches the model to quantization-aware training, for an int8 export.

        From now on `fit` rounds to 8 bits where LiteRT will. `detect` and `evaluate`
        also round, after the first training step that did. An int8 export then needs no
        `calibration`. All other exports are those of the float network.

        Start from a trained model (docs/quantization.md). A compiled model is compiled
        again, with a tenth of the learning rate that it was trained with.

        Args:
            delay: int, the number of training steps before the first that rounds, as
                `quant_delay` of the TF Object Detection API's `graph_rewriter`.
            batch_norm_steps: int, the number of training steps in which batch norm uses
                the statistics of the batch. Afterwards it uses the moving statistics,
                as the int8 file does.
            range_steps: int, the number of training steps in which the ranges are
                updated. None for all steps.

        Returns:
            The model itself.

        Raises:
            ValueError: If a number is wrong, or the model has layers of a TF-Hub
                module, mixed precision, frozen old classes, or an activation other than
                "swish", "hswish", "relu" or "relu6".
            RuntimeError: If Keras runs on a backend other than TensorFlow.
        """
        from effdet_keras.extras.quantization import Quantization

        rule = (
            "`quantize_aware` would change the results for the old classes, which are "
            "frozen: call `unfreeze()` first"
        )
        require(not self.frozen_labels, rule, frozen_labels=self.frozen_labels)

        with self.variable_scope():
            self.quantization = Quantization(self, delay, batch_norm_steps, range_steps)
        self.forget_functions()
        if self.settings is not None:
            self.compile_from_config(refining_config(self))
        return self

    def with_activation(self, name: str) -> Self:
        """Returns a new model with the same weights and another activation.

        Phones compute "hswish" and "relu6" faster than "swish". The weights were not
        trained with the new activation, so train the new model with
        `effdet_keras.distill(model, other, train)`. If this model is compiled, the new
        one is compiled in the same way, with a tenth of the learning rate that this one
        was trained with.

        Args:
            name: string, one of `effdet_keras.network.config.ACTIVATIONS`.

        Returns:
            `EfficientDet`. This model is not changed.

        Raises:
            ValueError: If the activation is unknown, or the model has layers of a
                TF-Hub module.

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
        """Exports the model to a file for another runtime, and checks it there.

        The exported file and this model run on the same images. The comparison is
        printed, and stored as `export_report.json` in the folder or beside the file. If
        the results disagree, nothing is written, and an earlier export at `path` is
        kept.

        Args:
            path: path to write: a folder for "saved_model", otherwise a file that ends
                in `.tflite`, `.onnx`, `.xml` (OpenVINO) or `.pt2` (torch).
            format: "saved_model", "litert", "onnx", "openvino" or "torch". None chooses
                it by the ending of `path`.
            target: instead of a format, where the model will run: "mediapipe", "coral",
                "litert-npu", "mnn" and others (docs/export_targets.md). `path` is then
                a folder.
            images: images for the check, as `detect` takes them, or a
                `effdet_keras.data.DetectionDataset`, of which four images are used.
                None for generated images.
            evaluate: `effdet_keras.data.DetectionDataset` on which to compare the AP of
                this model with that of its export. None for no comparison.
            verbose: 0 or 1, whether to print the report.
            **options: options of the format or target, such as `precision="int8"` and
                `calibration` (docs/export.md and the pages that it links to).

        Returns:
            `ExportReport`.

        Raises:
            ValueError: If the results of the export and the model disagree.
            FileExistsError: If `path` is a folder that is not an export.
            RuntimeError: If Keras runs on a backend other than TensorFlow, and the
                format, the target or an option needs TensorFlow (docs/export.md).
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
        """Creates a model from a TF-Hub module, with new last layers for fine-tuning.

        From an EfficientDet module, the model is this package's network with the
        module's weights. From any other feature module, the graph of the module is
        used, on TensorFlow. A saved model then needs the module on the machine that
        loads it. A module is a program: only load modules that you trust.

        Args:
            handle: http(s) address or folder of a feature module in google/automl's
                format, as `export_hub_module` writes it; or of a detector module.
            num_classes, class_names, category_ids: see `EfficientDet.from_preset`.
            trainable: bool. False freezes all weights except the new layers, see
                `freeze`.
            model_name: string, the published model that has the image size, anchors and
                normalization of the module. By default it is the model that is
                recognized, or else "efficientdet-d0".
            verbose: 0 or 1, whether to print what kind of module it is.
            **config_overrides: fields of `EfficientDetConfig`.

        Returns:
            `EfficientDet`. For a detector module a `HubDetector`, which can only
            `detect`.

        Raises:
            OSError: If there is nothing at the address or path.
            ValueError: If the module has another format, or its levels do not fit
                the config. The message says what was found.
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

        `from_hub`, `tensorflow_hub.load`, `hub.KerasLayer` and google/automl's trainer
        (`hub_module_url`) load the written folder; the last three do not need this
        package. The module is called with normalized float32 images of
        `config.image_size` and with `training`. It returns a list of class features and
        a list of box features. If the model has moving averages, the module contains
        these. Weights that are frozen here are not frozen in the module.

        Args:
            path: path of the folder to write. It must not exist.

        Raises:
            FileExistsError: If `path` exists.
            RuntimeError: If Keras runs on a backend other than TensorFlow.

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

    # --- The config of the model in files; `model/files.py` has the rest.

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
        # Without these features, files are the same as before the features existed.
        if self.config.has_segmentation:
            config["seg_class_names"] = self.seg_class_names
        if self.quantization is not None:
            config["quantization"] = self.quantization.get_config()
        # For a compiled model, the compile config says what is frozen.
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
        # Keras passes both when it clones, and would return a plain `Functional`.
        if {"operation_fn", "call_fn"} <= set(kwargs):
            raise InvalidStateError(
                "`keras.models.clone_model` cannot copy an `EfficientDet`: the copy "
                "would have its layers, but not `detect` and its own `fit`. To get "
                "another model with new weights, call `copy = "
                "EfficientDet.from_config(model.get_config())`; to give it the same "
                "weights, also call `copy.set_weights(model.get_weights())`."
            )
        return super()._run_through_graph(*args, **kwargs)

    def get_compile_config(self) -> dict:
        return compile_config(self)

    def compile_from_config(self, config: dict) -> None:
        compile_from_config(self, config)
