"""A `pipeline.config` of the Object Detection API: what has a place, and the rest."""

import re

import keras
import pytest
from support.tfod_files import pipeline_text

from effdet_keras.extras.tfod.checkpoint import freezing_of
from effdet_keras.extras.tfod.pipeline_config import (
    read_pipeline_config,
    read_pipeline_model,
)
from effdet_keras.extras.tfod.recipe import tfod_decay
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.network.backbone import EfficientNet
from effdet_keras.network.bifpn import BiFPN
from effdet_keras.network.build import build_network
from effdet_keras.network.config import EfficientDetConfig
from effdet_keras.network.heads import PredictionHead
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.requested import build_configuration

D0 = pipeline_text(EfficientDetConfig(num_classes=3), readers="")
RATE = D0[D0.index("cosine_decay") : D0.index(" }\n    momentum_optimizer_value")]
SCALES = D0[D0.index("y_scale") : D0.index(" } }\n  matcher")]
BY_CODESIZE = "normalize_loc_loss_by_codesize: true"
KEEPS_RATIO = "keep_aspect_ratio_resizer {"
FIXED_SHAPE = "fixed_shape_resizer { height: 256 width: 384 } k {"
STEP = "schedule { step: 9 learning_rate: 0.2 }"
MANUAL = "manual_step_learning_rate { initial_learning_rate: 0.1 %s }"
WARMUP = {"warmup_steps": 9, "warmup_init": 0.1}
EXPONENTIAL = "exponential_decay_learning_rate { %s }"
FLIP = "{ random_horizontal_flip { } }"
OF_ALL = {  # what its networks have and those of google/automl have not
    "anchor_order": "aspect_first",
    "resize_method": "asymmetric",
    "batch_norm_unbiased": True,
}
D0_FIELDS = {
    "recipe": "tfod",
    "model": "efficientdet-d0",
    "image_size": 512,
    "anchors": None,
    "model_config": {"backbone_survival_prob": 0.8, **OF_ALL},
    "loss": {
        "alpha": 0.25,
        "gamma": 1.5,
        "class_loss_weight": 1.0,
        "delta": 1.0,
        "box_loss_weight": 1.0,
        "normalizer": "positives",
    },
    "matching": {
        "iou_threshold": 0.5,
        "ignore_threshold": None,
        "force": True,
        "background_weight": 1.0,
        "normalized_coordinates": True,
    },
    "postprocess": {
        "method": "hard",
        "iou_threshold": 0.5,
        "score_threshold": 1e-8,
        "max_detections": 100,
        "per_class": True,
        "max_detections_per_class": 100,
        "pre_nms_top_k": None,
        "drop_empty": True,
    },
    "weight_decay": tfod_decay(),
    "batch_size": 16,
    "steps": 9000,
    "keep_every_hours": None,
    "clip_norm": None,
    "gradient_multipliers": None,
    "ema_decay": None,
    "weights": None,
    "optimizer": {"name": "momentum", "momentum": 0.8},
    "schedule": {
        "name": "cosine",
        "total_steps": 9000,
        "warmup_steps": 500,
        "warmup_init": 0.001,
    },
    "learning_rate": 0.08,
    "flip_probability": 0.5,
    "scale_jitter": (0.1, 1.5),
    "pad_rgb": (0.0, 0.0, 0.0),
    "augment": (),
}


def named(name, **fields):
    return {"name": name, **fields}


def burnt_in(rate):
    """The rate of the default fields after nine steps of another one."""
    warmup = {"warmup_steps": 9, "warmup_init": rate, "flat_warmup": True}
    decay = {"decay_steps": 4_000_000, "decay_rate": 0.95, "staircase": True}
    return {"schedule": named("exponential", **decay, **warmup), "learning_rate": 0.002}


def changed(name, **fields):
    """The fields of a D0 with others in one of its groups."""
    return {name: {**D0_FIELDS[name], **fields}}


@pytest.fixture
def write(tmp_path):
    """Writes a file, after changes `(old, new)` of its text."""

    def write(*changes, text=D0):
        for old, new in changes:
            assert old in text, old
            text = text.replace(old, new, 1)
        path = tmp_path / "pipeline.config"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def read(write):
    def read(*changes, text=D0):
        reading = read_pipeline_config(write(*changes, text=text))
        RunConfiguration(**reading.fields)  # which checks each
        return reading

    return read


@pytest.mark.smoke
def test_every_field_of_a_d0(read):
    reading = read()
    assert reading.fields == D0_FIELDS
    told = [note.split("=")[0].rpartition(".")[2] for note in reading.notes]
    assert told == ["num_classes", "initializer"]


def test_every_field_of_a_d1_with_other_values(read, tmp_path):
    (tmp_path / "map.pbtxt").write_text("item { id: 1 name: 'cat' }")
    (tmp_path / "ckpt-0.index").touch()
    reading = read(
        ("b0_bifpn", "b1_bifpn"),
        ("num_iterations: 3 num_filters: 64", "num_iterations: 4 num_filters: 88"),
        ("depth: 64", "depth: 88"),
        ("max_level: 7 num_it", "max_level: 6 num_it"),
        ("max_level: 7 anchor_scale: 4.0", "max_level: 6 anchor_scale: 3.5"),
        ("[1.0, 2.0, 0.5]", "[1.0, 3.0]"),
        ("scales_per_octave: 3", "scales_per_octave: 2"),
        ("min_dimension: 512", "min_dimension: 384"),
        ("max_dimension: 512", "max_dimension: 640"),
        ("dimension: true", "dimension: true per_channel_pad_value: [1, 0, 0]"),
        (SCALES, ""),
        ("weighted_smooth_l1 { }", "weighted_smooth_l1 { delta: 0.5 }"),
        ("localization_weight: 1.0", "localization_weight: 3.0"),
        ("decay: 0.99 scale", "decay: 0.97 scale"),
        ("decay: 0.99 epsilon", "decay: 0.97 epsilon"),
        ("SWISH", "RELU_6"),
        ("SWISH", "RELU_6"),
        ("add_background_class: false", "freeze_batchnorm: true"),
        (
            "score_threshold: 1e-08 iou_threshold: 0.5",
            "soft_nms_sigma: 0.25 use_class_agnostic_nms: true",
        ),
        ("max_total_detections: 100", "max_total_detections: 50"),
        ("use_moving_average: false", "moving_average_decay: 0.999"),
        (
            "num_steps: 9000",
            "gradient_clipping_by_norm: 5.0 bias_grad_multiplier: 2.0 "
            "summarize_gradients: true "
            f"fine_tune_checkpoint: '{tmp_path}/ckpt-0' "
            "fine_tune_checkpoint_type: 'detection' num_steps: 70 "
            "keep_checkpoint_every_n_hours: 1.5",
        ),
        (
            "eval_config {",
            f"train_input_reader {{ label_map_path: '{tmp_path}/map.pbtxt' }} "
            "eval_config { use_moving_averages: true ",
        ),
    )
    assert reading.fields == {
        **D0_FIELDS,
        "model": "efficientdet-d1",
        "image_size": 640,
        "model_config": {
            **OF_ALL,
            "backbone_taps": (6, 14, 21),
            "box_scales": (10.0, 10.0, 5.0, 5.0),
            "max_level": 6,
            "anchor_scale": 3.5,
            "aspect_ratios": (1.0, 3.0),
            "num_scales": 2,
            "pad_rgb": (182.07, 116.28, 103.53),
            "batch_norm_momentum": 0.97,
            "backbone_batch_norm_momentum": 0.99,
            "activation": "relu6",
            "backbone_activation": "swish",  # whatever the rest has
            "frozen_batch_norm": True,
        },
        "loss": {**D0_FIELDS["loss"], "delta": 0.5, "box_loss_weight": 3.0},
        "postprocess": {
            "method": "gaussian",
            "sigma": 0.5,
            "iou_threshold": 0.6,
            "score_threshold": 0.0,
            "max_detections": 50,
            "per_class": False,
            "max_detections_per_class": 50,
            "pre_nms_top_k": 0,
            "drop_empty": True,
        },
        "steps": 70,
        "keep_every_hours": 1.5,
        "clip_norm": 5.0,
        "gradient_multipliers": {"bias$": 2.0},
        "gradient_summary_every": 100,
        "ema_decay": 0.999,
        "weights": f"{tmp_path}/ckpt-0",
        "checkpoint_type": "detection",
        "class_names": f"{tmp_path}/map.pbtxt",
    }
    told = "\n".join(reading.notes)
    assert "min_dimension=384: this package scales images to fit 640x640" in told
    assert "iou_threshold=0.6: this package's Soft-NMS only lowers scores" in told


def test_only_bifpn_and_heads_have_the_activation_of_the_file(write):
    norm = "epsilon: 0.001"
    changes = [("SWISH", "RELU_6"), ("SWISH", "RELU_6"), (norm, "epsilon: 0.01")]
    described = read_pipeline_model(write(*changes, (f"99 {norm}", "99 epsilon: 0.01")))
    assert described.notes == described.unsupported == ()
    fields = {**described.config, "image_size": 64, "max_level": 6}
    config = EfficientDetConfig.from_name(**fields)
    images, outputs = build_network(config)
    layers = keras.Model(images, outputs).layers
    backbone = next(layer for layer in layers if isinstance(layer, EfficientNet))
    assert backbone.activation == backbone.blocks[3].activation == "swish"
    assert backbone.batch_norm.epsilon == 0.001
    assert {x.activation for x in layers if isinstance(x, PredictionHead)} == {"relu6"}
    bifpn = next(layer for layer in layers if isinstance(layer, BiFPN))
    assert (bifpn.options.activation, bifpn.options.batch_norm.epsilon) == (
        "relu6",
        0.01,
    )


def test_backbones_are_tapped_from_the_lowest_level_on(write):
    def taps_of(level, backbone):
        levels = [("min_level: 3", f"min_level:  {level}")] * 2
        changes = [*levels, ("b0_bifpn", f"{backbone}_bifpn")]
        return read_pipeline_model(write(*changes)).config["backbone_taps"]

    assert taps_of(3, "b1") == (6, 14, 21)
    assert taps_of(4, "b1") == (14, 21)
    assert taps_of(2, "b0") is None
    with pytest.raises(ValueError, match="bifpn.min_level. must be at least 3 with b1"):
        taps_of(2, "b1")


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        (RATE, "", "learning_rate` must have one of cosine_decay"),
        (
            RATE,
            "exponential_decay_learning_rate { initial_learning_rate: 0.01 "
            "decay_steps: 50 decay_factor: 0.5 staircase: false }",
            {
                "schedule": named(
                    "exponential", decay_steps=50, decay_rate=0.5, staircase=False
                ),
                "learning_rate": 0.01,
            },
        ),
        (
            RATE,
            EXPONENTIAL % "burnin_steps: 9 burnin_learning_rate: 0.1",
            burnt_in(0.1),
        ),
        (RATE, EXPONENTIAL % "burnin_steps: 9", burnt_in(0.002)),
        (
            RATE,
            MANUAL % f"{STEP} schedule {{ step: 20 learning_rate: 0.02 }}",
            {
                "schedule": named(
                    "manual_step", boundaries=(9, 20), rates=(0.1, 0.2, 0.02)
                ),
                "learning_rate": None,
            },
        ),
        (
            RATE,
            MANUAL % f"warmup: true {STEP} schedule {{ step: 20 learning_rate: 0.02 }}",
            {
                "schedule": named(
                    "manual_step", boundaries=(20,), rates=(0.2, 0.02), **WARMUP
                ),
                "learning_rate": None,
            },
        ),
        (
            RATE,
            MANUAL % f"warmup: true {STEP}",
            {"schedule": named("constant", **WARMUP), "learning_rate": 0.2},
        ),
        (
            "momentum_optimizer {",
            "rms_prop_optimizer { decay: 0.7 ",
            {"optimizer": named("rmsprop", momentum=0.8, rho=0.7, epsilon=1.0)},
        ),
        (
            "momentum_optimizer {",
            "adam_optimizer {",
            {"optimizer": named("adam", epsilon=1e-8)},
        ),
        (
            "gamma: 1.5 alpha: 0.25",
            "",
            changed("loss", alpha=0.5, gamma=2.0, class_loss_weight=2.0),
        ),
        (BY_CODESIZE, "", changed("loss", box_loss_weight=4.0)),
        (
            "weighted_smooth_l1 {",
            "weighted_giou {",
            {
                "loss": {
                    **{n: v for n, v in D0_FIELDS["loss"].items() if n != "delta"},
                    "box_loss_weight": 0.0,
                    "iou_loss_type": "giou",
                    "iou_loss_weight": 1.0,
                }
            },
        ),
        (
            "force_match_for_each_row: true matched_threshold: 0.5",
            "matched_threshold: 0.6 unmatched_threshold: 0.4",
            changed("matching", iou_threshold=0.6, ignore_threshold=0.4, force=False),
        ),
        ("weight: 4e-05", "weight: 0.2", {"weight_decay": tfod_decay(fpn=0.2)}),
        (
            "max_level: 7 num_it",
            "combine_method: 'attention' num_it",
            changed("model_config", fpn_weight_method="sum"),
        ),
        ("batch_size: 16", "", {"batch_size": 32}),
        ("use_moving_average: false", "", {"ema_decay": 0.9999}),
        (KEEPS_RATIO, FIXED_SHAPE, {"image_size": (256, 384)}),
    ],
)
def test_single_fields_and_their_defaults(read, old, new, fields):
    if isinstance(fields, str):
        with pytest.raises(ValueError, match=fields):
            read((old, new))
        return
    found = read((old, new)).fields
    assert {name: found.get(name) for name in fields} == fields


@pytest.mark.parametrize(
    ("backbone", "size", "name", "changed", "feature_blocks"),
    [
        ("b6", 1408, "efficientdet-d6", {}, (10, 25, 42)),
        ("b6", 1536, "efficientdet-d7", {"anchor_scale": 4.0}, (10, 25, 42)),
        ("b7", 1536, "efficientdet-d7x", {"max_level": 7}, (12, 30, 51)),
    ],
)
def test_the_preset_is_that_of_backbone_and_size(
    read, backbone, size, name, changed, feature_blocks
):
    fields = read(
        ("b0_bifpn", f"{backbone}_bifpn"),
        ("num_iterations: 3 num_filters: 64", ""),
        ("depth:", "depth_:"),
        ("num_layers_before_predictor: 3", ""),
        ("min_dimension: 512", f"min_dimension: {size}"),
        ("max_dimension: 512", f"max_dimension: {size}"),
    ).fields
    more = {"fpn_weight_method": "fastattn", "backbone_taps": feature_blocks}
    changed = {**changed, **OF_ALL, **more}
    assert (fields["model"], fields["model_config"]) == (name, changed)
    assert fields["image_size"] == size


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model { faster_rcnn { } }", "the config of a `faster_rcnn`"),
        (
            "model { ssd { feature_extractor { type: 'ssd_mobilenet_v2_keras' } } }",
            "the config of a `ssd_mobilenet_v2_keras`",
        ),
        ("item { id: 1 }", "a `file without a `model``"),
        (D0.replace("batch_size: 16", "batch_size: x"), "batch_size` must be a whole"),
        (D0.replace("SWISH", "GELU"), "must be one of 'SWISH', 'RELU'"),
        (D0.rstrip()[:-1], "`eval_config` has no end"),
        (D0.replace("multiscale_", "ssd_"), r"a `multiscale_.*\['ssd_anchor_gen"),
        (D0.replace("faster_rcnn_", "square_"), r"a `faster_rcnn_.*\['square_box"),
        (D0.replace("weight_shared_", ""), r"a `weight_shared_.*\['convolutional_box"),
        (D0.replace("7 num_it", "6 num_it"), "the same levels.*'max_level': 6"),
    ],
    ids=range(10),
)
def test_what_cannot_be_read_is_told(read, text, message):
    with pytest.raises(ValueError, match=message) as error:
        read(text=text)
    assert "pipeline.config'" in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "place", "reason"),
    [
        ("SIGMOID", "SOFTMAX", "score_converter=SOFTMAX", "always .* a sigmoid"),
        (
            "score_converter: SIGMOID",
            "",
            "score_converter=IDENTITY",
            "always .* a sigmoid",
        ),
        (
            "depthwise: true",
            "depthwise: false",
            "use_depthwise=false",
            "are always separable",
        ),
        ("use_depthwise: true", "", "use_depthwise=false", "are always separable"),
        (KEEPS_RATIO, "identity_resizer { } k {", "image_resizer={...}", "preset"),
        (
            KEEPS_RATIO,
            FIXED_SHAPE,
            "fixed_shape_resizer=256x384",
            "stretches images to this size.*detections differ",
        ),
    ],
)
def test_what_changes_detections_is_told_on_loading(write, old, new, place, reason):
    assert not any(place in note for note in read_pipeline_model(write()).notes)
    notes = read_pipeline_model(write((old, new))).notes
    (told,) = [note for note in notes if place in note]
    assert re.search(reason, told)


def test_what_has_no_place_is_told_once_and_the_unknown_is_named(read):
    assert read().unsupported == ()  # of a D0 all is done
    reading = read(
        ("normalize_loc", "hard_example_miner { num_hard_examples: 3 } normalize_loc"),
        ("num_steps", "use_bfloat16: true frobnicate: 3 num_steps"),
        (FLIP, "{ remap_labels { new_label: 1 } }"),
        ("coco_detection_metrics", "pascal_voc_detection_metrics"),
        ("matched_threshold: 0.5", "negatives_lower_than_unmatched: false"),
        ("regularizer { l2_", "regularizer { l1_"),
        ("weighted_smooth_l1 { }", "weighted_l2 { }"),
        ("weighted_sigmoid_focal {", "bootstrapped_sigmoid {"),
        ("add_background_class: false", ""),
    )
    told = dict(note.split(": ", 1) for note in reading.notes)
    unsupported = [
        note.split("=")[0].rpartition(".")[2] for note in reading.unsupported
    ]
    mere = ["frobnicate", "hard_example_miner", "remap_labels"]
    losses = ["alpha", "gamma", "weighted_l2"]
    others = ["l1_regularizer", "negatives_lower_than_unmatched"]
    assert sorted(unsupported) == sorted([*mere, *losses, *others])
    assert told["model.ssd.hard_example_miner={...}"].startswith("the focal loss")
    assert told["train_config.frobnicate=3"] == "this package does not know this field"
    assert told["model.ssd.add_background_class=true"].startswith(
        "models have no background class"
    )
    remap = "train_config.data_augmentation_options.remap_labels={...}"
    assert told[remap] == "this package does not have this augmentation"
    assert told["eval_config.metrics_set=pascal_voc_detection_metrics"]
    assert len(told) == len(reading.notes)


def test_what_is_not_done_stops_a_run_unless_it_is_ignored(write):
    path = write(("SIGMOID", "SOFTMAX"), ("num_steps", "frob: 3 num_steps"))
    with pytest.raises(ValueError, match="--ignore-unknown") as error:
        build_configuration(None, None, {}, path)
    for name in ("score_converter=SOFTMAX", "train_config.frob=3", "pipeline.config'"):
        assert name in str(error.value)
    assert "num_classes" not in str(error.value)  # which is a mere note
    assert build_configuration(None, None, {}, path, ignore_unknown=True).steps == 9000
    with pytest.raises(ValueError, match="score_converter=SOFTMAX") as error:
        EfficientDet.from_pipeline_config(path)
    assert "frob" not in str(error.value)  # which is of the training


def test_a_graph_rewriter_is_quantization_aware_training(read):
    def rewritten(fields):
        return read(text=f"{D0} graph_rewriter {{ quantization {{ {fields} }} }}")

    reading = rewritten("delay: 600 weight_bits: 8 activation_bits: 8")
    assert reading.fields["quantize_aware"] == {"delay": 600}
    assert reading.unsupported == ()
    bits = "graph_rewriter.quantization.weight_bits=4: weights always have 8 bits"
    assert rewritten("weight_bits: 4").unsupported == (bits,)


def test_a_checkpoint_that_is_not_there_stops_unless_another_is_named(write):
    start = "fine_tune_checkpoint: 'nowhere/ckpt-0' fine_tune_checkpoint_type: 'full'"
    path = write(("num_steps", f"{start} num_steps"))
    with pytest.raises(FileNotFoundError, match="'nowhere/ckpt-0'.*--weights"):
        build_configuration(None, None, {}, path)
    run = build_configuration(None, None, {"weights": "other/ckpt-3"}, path)
    assert (run.weights, run.checkpoint_type) == ("other/ckpt-3", "full")
    assert (
        build_configuration(None, None, {"weights": None}, path).checkpoint_type is None
    )


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ("freeze_variables: '_efficientnet/'", r"efficientnet-b0/"),
        ("freeze_variables: ['_efficientnet', 'bifpn']", r"(?!class_net|box_net)"),
        ("freeze_variables: 'combine_weights'", r".*/WSM"),
        (
            "update_trainable_variables: 'box_predictor' freeze_variables: 'bias$'",
            r"(?!class_net|box_net)|.*bias$",
        ),
    ],
)
def test_exactly_the_variables_are_frozen_that_the_expressions_match(
    read, train, expected
):
    fields = freezing_of(read(("num_steps", f"{train} num_steps")))
    assert fields["freeze_batch_norm"] is False and len(fields["freeze"]) < 9_000
    config = EfficientDetConfig.from_name("efficientdet-d0", image_size=128)
    variables = [v.path for v in EfficientDet(config).weights if "moving" not in v.path]
    frozen = {p for p in variables if re.match(fields["freeze"], p)}
    assert frozen == {p for p in variables if re.match(expected, p)} != set()


def test_an_expression_that_matches_nothing_stops_unless_freeze_is_given(write):
    path = write(("num_steps", "freeze_variables: 'resnet' num_steps"))
    with pytest.raises(ValueError, match="'resnet', which occurs in no name.*--freeze"):
        build_configuration(None, None, {}, path)
    assert (
        build_configuration(None, None, {"freeze": "backbone"}, path).freeze
        == "backbone"
    )
    with pytest.raises(ValueError, match="not a valid regular expression"):
        path = write(("num_steps", "freeze_variables: '(' num_steps"))
        build_configuration(None, None, {}, path)


def test_arguments_count_more_than_the_file(write, capsys):
    fields = {"epochs": 2, "loss": {"gamma": 2.0}}
    run = build_configuration(RunConfiguration(seed=3), None, fields, write())
    assert (run.epochs, run.steps, run.seed, run.batch_size) == (2, None, 3, 16)
    assert run.loss == changed("loss", gamma=2.0)["loss"]
    assert "num_classes=3: the classes are those" in capsys.readouterr().out
    with pytest.raises(ValueError, match="or `pipeline_config`, not both"):
        build_configuration(None, "gamma=2.0", {}, write())
