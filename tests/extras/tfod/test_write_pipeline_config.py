"""The `pipeline.config` of an export: what the API and our reader make of it."""

import numpy as np
import pytest
from support.tfod_files import SMALL, pipeline_text
from support.tiny import lively_model

from effdet_keras._internal.proto_text import Enum, message_text, parse
from effdet_keras.export import saved_model
from effdet_keras.extras.tfod.pipeline_config import (
    read_pipeline_config,
    read_pipeline_model,
)
from effdet_keras.extras.tfod.write_pipeline_config import write_pipeline_config
from effdet_keras.model.efficientdet import EfficientDet

TEXT = pipeline_text(SMALL, readers="")
OPTIMIZER = TEXT[TEXT.index("momentum_optimizer") : TEXT.index("use_moving_average")]
NMS = "iou_threshold: 0.5"
MANUAL = """manual_step_learning_rate { initial_learning_rate: 0.1 warmup: true
  schedule { step: 9 learning_rate: 0.2 } schedule { step: 20 learning_rate: 0.05 } }"""
EXPONENTIAL = """exponential_decay_learning_rate { initial_learning_rate: 0.1
  decay_steps: 7 decay_factor: 0.5 staircase: false burnin_steps: 3
  burnin_learning_rate: 0.01 }"""
CHANGES = {  # several at once: to make a model takes seconds
    "as published": {},
    "Adam, manual steps, Soft-NMS, GIoU, averages": {
        OPTIMIZER: f"adam_optimizer {{ learning_rate {{{MANUAL}}} }}",
        NMS: "iou_threshold: 1.0 soft_nms_sigma: 0.25",
        "weighted_smooth_l1": "weighted_giou",
        "use_moving_average: false": "moving_average_decay: 0.99",
    },
    "RMSprop, exponential, across classes, ReLU6, clipping": {
        OPTIMIZER: f"rms_prop_optimizer {{ learning_rate {{ {EXPONENTIAL} }} }}",
        NMS: "iou_threshold: 0.4 use_class_agnostic_nms: true",
        "activation: SWISH": "activation: RELU_6",
        "num_steps": "gradient_clipping_by_norm: 3.0 num_steps",
    },
    "constant, combined, threshold, padding, no L2": {
        OPTIMIZER: "momentum_optimizer { learning_rate { constant_learning_rate {} } }",
        NMS: f"{NMS} use_combined_nms: true",
        "matched_threshold: 0.5": "matched_threshold: 0.6",
        "pad_to_max_dimension: true": "per_channel_pad_value: [1, 0, -1]",
        "num_steps": "add_regularization_loss: false num_steps",
    },
}
# What a model does not know, because it is of the data.
OF_DATA = ("batch_size", "flip_probability", "scale_jitter", "pad_rgb", "augment")


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, dict):
            assert_same(found[name], value)
        elif isinstance(value, (float, tuple)) and value and value != (None,):
            np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)
        else:
            assert found[name] == value, name


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_is_read_back_as_the_one_its_model_was_made_of(change, tmp_path):
    first, second = tmp_path / "first.config", tmp_path / "pipeline.config"
    text = TEXT
    for one, other in CHANGES[change].items():
        assert one in text
        text = text.replace(one, other)
    first.write_text(text)
    model = EfficientDet.from_pipeline_config(first, weights="none", verbose=0)
    write_pipeline_config(model, tmp_path)
    expected, found = read_pipeline_model(first), read_pipeline_model(second)
    assert_same(found.config, expected.config)
    assert_same(found.postprocess, expected.postprocess)
    assert (found.num_classes, found.unsupported) == (2, ())
    wanted, read = (read_pipeline_config(path).fields for path in (first, second))
    wanted, read = (
        {name: value for name, value in fields.items() if name not in OF_DATA}
        for fields in (wanted, read)
    )
    assert_same({**read, "steps": 0}, {**wanted, "steps": 0})
    # One line says who wrote it: there is no difference to tell.
    assert second.read_text().count("# ") == 1


def test_what_the_file_cannot_say_is_told_in_it(tmp_path):
    model = EfficientDet(SMALL.replace(activation="hswish"))
    write_pipeline_config(model, tmp_path)
    lines = (tmp_path / "pipeline.config").read_text().splitlines()
    comments = "\n".join(line for line in lines if line.startswith("#"))
    for told in (
        "activation='hswish' (in this file 'swish')",
        "anchor_order='scale_first' (in this file 'aspect_first')",
        "resize_method='half_pixel' (in this file 'asymmetric')",
        "pre_nms_top_k=5000 (in this file None)",
    ):
        assert told in comments
    assert "fpn_num_filters" not in comments
    (tmp_path / "label_map.pbtxt").unlink()
    assert read_pipeline_model(tmp_path).config["fpn_num_filters"] == 8


@pytest.mark.parametrize("same", ["swish", "silu"])
def test_an_activation_by_another_name_is_no_difference(tmp_path, same):
    write_pipeline_config(
        EfficientDet(SMALL.replace(backbone_activation=same)), tmp_path
    )
    assert "activation=" not in (tmp_path / "pipeline.config").read_text()


def test_another_activation_of_the_backbone_is_told(tmp_path):
    model = EfficientDet(SMALL.replace(backbone_activation="relu6"))
    write_pipeline_config(model, tmp_path)
    text = (tmp_path / "pipeline.config").read_text()
    assert "backbone_activation='relu6' (in this file None)" in text


def test_an_oblong_input_is_told(tmp_path):
    write_pipeline_config(EfficientDet(SMALL.replace(image_size=(128, 256))), tmp_path)
    text = (tmp_path / "pipeline.config").read_text()
    assert "# model.ssd.image_resizer.fixed_shape_resizer=128x256: the API" in text


def test_a_model_of_another_backbone_is_written_and_told(tmp_path):
    write_pipeline_config(lively_model(), tmp_path)
    text = (tmp_path / "pipeline.config").read_text()
    assert "has no such feature extractor" in text
    ssd = parse(text).fields["model"][0].fields["ssd"][0]
    assert ssd.fields["num_classes"] == ["3"]
    with pytest.raises(ValueError, match="config of a `ssd_efficientnet-lite-tiny"):
        read_pipeline_model(tmp_path)


def test_the_label_map_has_the_ids_of_the_classes(tmp_path):
    names = ('a "cat"', "dog")
    model = EfficientDet(SMALL, class_names=names)
    write_pipeline_config(model, tmp_path)
    again = EfficientDet.from_pipeline_config(tmp_path, weights="none", verbose=0)
    assert again.class_names == names
    assert again.category_ids == (1, 2)


@pytest.mark.parametrize(("names", "is_there"), [("tfod", True), ("effdet", False)])
def test_it_stands_beside_an_export_with_the_names_of_the_api(
    names, is_there, tmp_path, monkeypatch
):
    def save(module, path, signatures):  # TensorFlow's part takes long
        (path / "assets").mkdir()
        for name in ("saved_model.pb", "assets/effdet_keras.json"):
            (path / name).write_text("")

    monkeypatch.setattr(saved_model, "save_function", save)
    signatures = {"serving_default": None}
    monkeypatch.setattr(saved_model, "_signatures", lambda *a, **k: signatures)
    saved_model.write_saved_model(lively_model(), tmp_path, names=names)
    for name in ("pipeline.config", "label_map.pbtxt"):
        assert (tmp_path / name).exists() is is_there


def test_text_of_a_message():
    fields = {"a": {"b": [1.5, 2], "c": True}, "d": 'x"\\\n', "e": Enum("SWISH")}
    text = message_text(fields)
    assert 'd: "x\\"\\\\\\n"\ne: SWISH\n' in text
    read = parse(text).fields
    assert read["a"][0].fields == {"b": ["1.5", "2"], "c": ["true"]}
    assert read["d"] == ['x"\\\n']
