"""Cuts a `.tflite` file before its levels are concatenated, with an output per map."""

from __future__ import annotations

from effdet_keras._internal.optional_imports import tflite_files, tflite_schema
from effdet_keras.errors import InvalidStateError

# Operations that may be between a map and the concatenation of the output.
_WITHOUT_EFFECT = ("RESHAPE", "QUANTIZE", "DEQUANTIZE")


def cut_levels(model, names):
    """Makes the maps of the levels, `[B, h, w, channels]`, the outputs of a model.

    `model` is a `ModelT` of TFLite's schema whose outputs are concatenations over the
    levels, from the lowest level up. `names` are those of the maps, such as
    `box_deltas_3`, in the desired order of outputs. Maps of int8 remain int8.

    Raises:
        RuntimeError: If an output is not a concatenation of the levels.
    """
    graph, signature = model.subgraphs[0], model.signatureDefs[0]
    made_by = {tensor: op for op in graph.operators for tensor in op.outputs}

    def operation(tensor):
        return tflite_files.opcode_to_name(model, made_by[tensor].opcodeIndex)

    def source(tensor):
        while operation(tensor) in _WITHOUT_EFFECT:
            tensor = made_by[tensor].inputs[0]
        return tensor

    levels = sorted({int(name.rpartition("_")[2]) for name in names})
    maps = {}
    for output in graph.outputs:
        name = graph.tensors[output].name.decode()
        concat = source(output)
        parts, kind = made_by[concat].inputs, operation(concat)
        if kind != "CONCATENATION" or len(parts) != len(levels):
            raise InvalidStateError(
                f"`{name}` is not a concatenation of the levels. Received: {kind} of "
                f"{len(parts)} inputs"
            )
        for level, tensor in zip(levels, parts):
            maps[f"{name}_{level}"] = source(tensor)
    graph.outputs = [maps[name] for name in names]
    signature.outputs = []
    for name in names:
        output = tflite_schema.TensorMapT()
        output.name, output.tensorIndex = name.encode(), maps[name]
        signature.outputs.append(output)
        graph.tensors[maps[name]].name = name.encode()
    _remove_unused(graph, signature)


def _remove_unused(graph, signature):
    """Removes operators and tensors that no output depends on."""
    needed, kept = {*graph.inputs, *graph.outputs}, []
    for operator in reversed(graph.operators):
        if needed & set(operator.outputs):
            needed |= {*operator.inputs, *operator.outputs}
            kept.append(operator)
    graph.operators = kept[::-1]
    places = sorted(needed - {-1})  # -1 means an omitted input
    new = {-1: -1, **{old: place for place, old in enumerate(places)}}
    graph.tensors = [graph.tensors[old] for old in places]
    for owner in (graph, *graph.operators):
        owner.inputs = [new[tensor] for tensor in owner.inputs]
        owner.outputs = [new[tensor] for tensor in owner.outputs]
    for entry in (*signature.inputs, *signature.outputs):
        entry.tensorIndex = new[entry.tensorIndex]
