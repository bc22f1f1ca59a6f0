"""google/automl's hyper-parameters: each has a field, or is told to have no place."""

import pathlib

import pytest

from effdet_keras.extras.hparams import known_names, read_hparams
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.requested import build_configuration as run_of
from effdet_keras.train.losses import DetectionLoss

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "migration"

# A value for each as their command takes it, none of them google/automl's default.
VALUES = """
act_type=relu6 alpha=0.5 anchor_scale=3.0 apply_bn_for_resampling=False
aspect_ratios=1.0*3.0 autoaugment_policy=v1 backbone_config=x
backbone_name=efficientnet-b1 box_class_repeats=2 box_loss_weight=40.0
ckpt_var_scope=x clip_gradients_norm=5.0 conv_after_downsample=True
conv_bn_act_pattern=True data_format=channels_first dataset_type=x delta=0.2
drop_remainder=False first_lr_drop_epoch=3.0 fpn_cell_repeats=2 fpn_config=x
fpn_name=bifpn_dyn fpn_num_filters=32 fpn_weight_method=sum gamma=2.0
grad_checkpoint=True grid_mask=True heads=object_detection*segmentation
image_size=640x320 img_summary_steps=5 input_rand_hflip=False iou_loss_type=giou
iou_loss_weight=2.0 is_training_bn=False jitter_max=1.5 jitter_min=0.5 label_map=voc
label_smoothing=0.1 learning_rate=0.04 loss_scale=8.0 lr_decay_method=stepwise
lr_warmup_epoch=2.0 lr_warmup_init=0.004 map_freq=3 max_instances_per_image=50
max_level=6 mean_rgb=127.0 min_level=2 mixed_precision=True momentum=0.8
moving_average_decay=0 name=efficientdet-d2 nms_configs.iou_thresh=0.6
nms_configs.max_nms_inputs=100 nms_configs.max_output_size=50 nms_configs.method=hard
nms_configs.pyfunc=True nms_configs.score_thresh=0.1 nms_configs.sigma=0.4
num_classes=3 num_epochs=7 num_scales=2 optimizer=adam poly_lr_power=0.8
positives_momentum=-1 regenerate_source_id=True sample_image=x.jpg save_freq=100
scale_range=True second_lr_drop_epoch=225.0 seg_num_classes=4 separable_conv=False
skip_crowd_during_training=False skip_mismatch=False stddev_rgb=128.0 strategy=gpus
survival_prob=0.8 target_size=100 tflite_max_detections=10 use_keras_model=False
var_freeze_expr=(efficientnet|fpn_cells|resample_p6) verbose=0 weight_decay=1e-05
"""
OTHERS = VALUES.split()
# Settings of a schedule that is not chosen are not used there either.
NEEDS = {
    "first_lr_drop_epoch": "lr_decay_method=stepwise",
    "second_lr_drop_epoch": "lr_decay_method=stepwise",
    "poly_lr_power": "lr_decay_method=polynomial",
}


def build_configuration(hparams, batch_size=8):
    return RunConfiguration(**read_hparams(hparams, batch_size=batch_size).fields)


def test_all_hyper_parameters_are_known():
    golden = (GOLDEN / "automl_hparams.txt").read_text().split()
    names = [given.partition("=")[0] for given in OTHERS]
    assert known_names() == sorted([*golden, "model_optimizations"])
    assert sorted(golden) == sorted(names)


@pytest.mark.parametrize("given", OTHERS)
def test_each_has_a_field_or_is_told(given):
    name = given.partition("=")[0]
    more = NEEDS.get(name, "")
    reading = read_hparams(f"{given},{more}", batch_size=8)
    has_field = RunConfiguration(**reading.fields) != build_configuration(more)
    is_told = any(note.startswith(f"{name}=") for note in reading.notes)
    assert has_field != is_told


@pytest.mark.smoke
def test_the_string_of_the_migration_guide():
    run = build_configuration(
        "num_classes=3,image_size=1920x1280,gamma=2.0,learning_rate=0.01,"
        "moving_average_decay=0,jitter_min=0.8,jitter_max=1.2,"
        "nms_configs.method=hard,nms_configs.iou_thresh=0.6"
    )
    assert run.image_size == (1280, 1920)
    assert run.loss == {"gamma": 2.0}
    assert (run.learning_rate, run.optimizer) == (0.01, None)  # `fit` scales it
    assert run.ema_decay is None
    assert run.scale_jitter == (0.8, 1.2)
    assert run.postprocess == {"method": "hard", "iou_threshold": 0.6}


def test_the_yaml_of_their_readme_works_unchanged(tmp_path):
    path = tmp_path / "voc_config.yaml"
    path.write_text(
        "num_classes: 21\n"
        "var_freeze_expr: '(efficientnet|fpn_cells|resample_p6)'\n"
        "nms_configs:\n  method: hard\n  sigma: 0.0\n  max_nms_inputs: 0\n"
        "label_map: {1: aeroplane, 2: bicycle}\n"
    )
    reading = read_hparams(path, batch_size=8)
    run = RunConfiguration(**reading.fields)
    assert run.class_names == {1: "aeroplane", 2: "bicycle"}
    assert run.freeze.startswith("(efficientnet")
    assert run.postprocess == {"method": "hard"}
    assert [note.partition(":")[0] for note in reading.notes] == ["num_classes=21"]


def test_what_goes_on_under_its_own_name():
    run = build_configuration(
        "mixed_precision=true,loss_scale=128.0,target_size=640x320"
    )
    assert (run.precision, run.loss_scale) == ("mixed_float16", 128.0)
    assert (run.target_size, run.image_size) == ((320, 640), None)
    assert build_configuration("mixed_precision=true").precision == "mixed_bfloat16"
    run = build_configuration("positives_momentum=0.9")
    assert run.recipe_arguments()["loss"] == DetectionLoss(positives_momentum=0.9)


def test_rates_of_other_optimizers_are_scaled_to_the_batch_as_there():
    run = build_configuration("optimizer=adam,learning_rate=0.008", batch_size=16)
    assert (run.optimizer, run.learning_rate) == ("adam", 0.002)
    run = build_configuration(
        "optimizer=adam,momentum=0.8"
    )  # which is its `beta_1` there
    assert run.optimizer == {"name": "adam", "beta_1": 0.8}
    run = build_configuration("momentum=0.8", batch_size=32)
    assert run.optimizer == {"name": "momentum", "momentum": 0.8}
    assert run.learning_rate == 0.04


@pytest.mark.parametrize(
    ("method", "schedule"),
    [
        ("cosine", {"name": "cosine", "warmup_epochs": 2.0}),
        ("constant", {"name": "constant"}),
        (
            "stepwise",
            {"name": "stepwise", "drop_epochs": (9.0, 250.0), "warmup_epochs": 2.0},
        ),
        ("polynomial", {"name": "polynomial", "warmup_epochs": 2.0}),
    ],
)
def test_schedules(method, schedule):
    given = f"lr_decay_method={method},lr_warmup_epoch=2.0,first_lr_drop_epoch=9.0"
    assert build_configuration(given).schedule == schedule


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ("gama=2.0,learning_rat=1", r"'gama', 'learning_rat'\. Did you mean 'gamma'"),
        ({"nms_configs": {"iou": 1}}, "no hyper-parameter 'nms_configs.iou'"),
        ("gamma=2.0,3.0", '"name=value,name=value"'),
        ("hparams.txt", "ends in '.yaml'"),
        ("optimizer=rmsprop", "must be 'sgd' or 'adam'"),
        ("optimizer=adam,learning_rate=high", "`learning_rate` must be a number"),
    ],
    ids=str,
)
def test_what_is_unknown_or_unreadable_is_told(hparams, message):
    with pytest.raises((ValueError, TypeError), match=message):
        read_hparams(hparams, batch_size=8)


@pytest.mark.parametrize(
    "given", ["model_optimizations.prune.schedule=x", {"model_optimizations": "prune"}]
)
def test_pruning_says_what_is_offered_instead_and_stops_a_run(given):
    with pytest.raises(ValueError, match="pruning is not.*\n.*--ignore-unknown"):
        run_of(None, given, {})
    assert run_of(None, given, {}, ignore_unknown=True).recipe == "reference"


QUANTIZE = [
    {"model_optimizations": {"quantize": {}}},
    {"model_optimizations": {"quantize": None}},
    {"model_optimizations.quantize": {}},
    "model_optimizations.quantize={}",
    "model_optimizations=quantize",
]


@pytest.mark.parametrize("given", QUANTIZE, ids=str)
def test_quantize_is_quantization_aware_training(given):
    run = run_of(None, given, {})
    assert run.quantize_aware is True and run.recipe == "reference"


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("prune", "pruning is not supported"),
        ("foo", "not supported, and google/automl has no such method"),
    ],
)
@pytest.mark.parametrize("options", [{}, None, {"schedule": {}}, {"schedule": "x"}])
def test_another_optimization_is_named_and_stops_a_run(method, reason, options):
    given = {"model_optimizations": {method: options}}
    message = rf"model_optimizations\.{method}=.*{reason}.*\n.*--ignore-unknown"
    with pytest.raises(ValueError, match=message):
        run_of(None, given, {})
    run = run_of(None, given, {}, ignore_unknown=True)
    assert (run.quantize_aware, run.recipe) == (None, "reference")


def test_options_of_quantize_that_have_no_field_stop_a_run():
    given = {"model_optimizations": {"quantize": {"quantize_config": "x"}}}
    with pytest.raises(ValueError, match="quantize_config.*with --set"):
        run_of(None, given, {})
    assert run_of(None, given, {}, ignore_unknown=True).quantize_aware is True


@pytest.mark.parametrize(
    "name", ["model_optimizations", "nms_configs", "backbone_config", "fpn_config"]
)
def test_an_empty_mapping_of_a_mapping_asks_for_nothing(name):
    assert run_of(None, {name: {}}, {}) == run_of(None, {}, {})


MAPPINGS = ("model_optimizations", "backbone_config", "fpn_config", "label_map")


@pytest.mark.parametrize("name", sorted({*known_names()} - {*MAPPINGS}))
def test_an_empty_mapping_is_never_dropped_in_silence(name):
    with pytest.raises(ValueError, match=f"`{name}` must be a value, not a mapping"):
        run_of(None, {name: {}}, {})


def test_an_unknown_name_with_an_empty_mapping_is_told(tmp_path):
    (tmp_path / "hparams.yaml").write_text("foo: {}\nnms_configs: {bar: {}}\n")
    with pytest.raises(ValueError, match="no hyper-parameter 'foo', 'nms_configs.bar'"):
        run_of(None, tmp_path / "hparams.yaml", {})
