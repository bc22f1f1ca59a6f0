"""Makes and compiles a model from a `pipeline.config` of the Object Detection API."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.errors import InvalidStateError
from effdet_keras.extras.tfod.checkpoint import classes_of_label_map, freezing_of
from effdet_keras.extras.tfod.pipeline_config import (
    read_pipeline_config,
    read_pipeline_model,
    start_of,
)
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.runs.configuration import refuse_unsupported
from effdet_keras.train.losses import DetectionLoss
from effdet_keras.train.matching import IoUMatching
from effdet_keras.train.recipe import Recipe
from effdet_keras.weights.pretrained import load_source
from effdet_keras.weights.read_weights import coco_classes, read_weights

_REWRITER = "graph_rewriter"
_NUM_CLASSES = "num_classes"  # a run takes it from its dataset, a model from the file


def model_of_pipeline(
    cls: type,
    path: str | os.PathLike,
    weights: str | os.PathLike | None,
    *,
    class_names,
    category_ids,
    averages: bool,
    skip_mismatch: bool,
    ignore_unknown: bool,
    verbose: int,
    overrides: Mapping[str, Any],
) -> Any:
    """Makes, loads and compiles a model; see `EfficientDet.from_pipeline_config`."""
    described, read = read_pipeline_model(path), read_pipeline_config(path)
    if not ignore_unknown:
        of_rewriter = (note for note in read.unsupported if note.startswith(_REWRITER))
        unsupported = (*described.unsupported, *of_rewriter)
        refuse_unsupported(f"'{os.fspath(path)}'", unsupported)
    is_of_file = weights == "auto"
    start = start_of(path, read, {} if is_of_file else {"weights": weights})
    weights = None if start["weights"] == "none" else start["weights"]
    fields = {**described.config, "num_classes": described.num_classes, **overrides}
    name = fields.pop("name")
    notes = [note for note in read.notes if f".{_NUM_CLASSES}=" not in note]
    if class_names is None:
        names, ids, more = classes_of_label_map(described)
        if names is None:
            names, ids = coco_classes(described.num_classes)
        if fields["num_classes"] == described.num_classes:
            class_names, category_ids = names, category_ids or ids
        notes += [
            note for note in more if os.fspath(described.label_map) not in str(notes)
        ]
    elif "num_classes" not in overrides:
        fields["num_classes"] = len(class_names)
    model = cls(
        EfficientDetConfig.from_name(name, **fields),
        class_names=class_names,
        category_ids=category_ids,
        postprocess=Postprocess(**described.postprocess),
    )
    if weights is not None:
        source = read_weights(
            weights, name, averages=averages, own_pipeline_config=path, verbose=verbose
        )
        # These notes are printed once, for the given `pipeline.config`.
        source = dataclasses.replace(source, notes=())
        load_source(
            model,
            source,
            skip_mismatch=skip_mismatch,
            # Weights that the caller names are usually a trained model, to detect with.
            checkpoint_type=start["checkpoint_type"] if is_of_file else None,
            verbose=verbose,
        )
    if "quantize_aware" in read.fields:
        try:
            model.quantize_aware(**read.fields["quantize_aware"])
        except InvalidStateError as error:  # the backend is not TensorFlow
            if not ignore_unknown:
                raise
            notes.append(f"{_REWRITER}: {error}")
    model.compile(**_compile_arguments({**read.fields, **freezing_of(read)}))
    if verbose:
        title = f"Differences from '{os.fspath(path)}':"
        print("\n  ".join([title, *notes]), flush=True)
    return model


def _compile_arguments(fields):
    """Returns the arguments of `EfficientDet.compile` among the fields of a run."""
    # The other fields are for `fit`, the data or the model.
    names = ["recipe", *(field.name for field in dataclasses.fields(Recipe))]
    arguments = {name: fields[name] for name in names if name in fields}
    arguments["loss"] = DetectionLoss(**fields["loss"])
    if matching := arguments.pop("matching", None):
        arguments["matching"] = IoUMatching(**matching)
    return arguments
