"""What each field of a run may be."""

from effdet_keras.augment.names import NAMES, is_name
from effdet_keras.data.formats.registry import FORMATS
from effdet_keras.distribution.starting import KINDS as ENGINES
from effdet_keras.runs.durations import is_duration
from effdet_keras.runs.kinds import (
    AUTO,
    MAPPING,
    NOTHING,
    SWITCH,
    TEXT,
    Kind,
    many,
    number,
    one_of,
    whole,
)
from effdet_keras.runs.profile import is_range_of_steps
from effdet_keras.training import recipe

_POSITIVE = number("a number above 0", lambda x: x > 0)
_NOT_NEGATIVE = number("a number of at least 0", lambda x: x >= 0)
_PIXEL = number("a number from 0 to 255", lambda x: 0 <= x <= 255)
_SHARE = number("a number from 0 to 1", lambda x: 0 <= x <= 1)
_BELOW_ONE = number("a number of at least 0 and below 1", lambda x: 0 <= x < 1)
_PART = number("a number above 0 and below 1", lambda x: 0 < x < 1)
_SIZE = whole(1) | many(whole(1), "[height, width] in pixels", count=2)
_DURATION = Kind("a duration such as '90s', '20m' or '1.5h'", is_duration)
_STEPS = Kind("a step such as 10, or steps such as '10,20'", is_range_of_steps)
_LINES = Kind("0, 1, 2", lambda value: type(value) is int and value in (0, 1, 2))
_NAMES = many(TEXT, "a list of names")
_AUGMENT = many(
    Kind("an augmentation", is_name) | MAPPING,
    f"a list of augmentations ({', '.join(NAMES)}; steps of the Object Detection API), "
    "each a name, or a mapping with `name` and arguments",
)

FIELD_KINDS = {
    "data": TEXT | NOTHING,
    "format": one_of(*FORMATS) | NOTHING,
    "train_split": TEXT,
    "validation_split": TEXT,
    "test_split": TEXT | NOTHING,
    "validation_fraction": _PART,
    "class_names": _NAMES | TEXT | MAPPING | NOTHING,
    "train_on_crowds": SWITCH,
    "model": TEXT,
    "weights": TEXT | NOTHING,
    "checkpoint_type": one_of("classification", "detection", "full") | NOTHING,
    "image_size": AUTO | _SIZE | NOTHING,
    "anchors": AUTO | NOTHING,
    "model_config": MAPPING,
    "precision": one_of("float32", "mixed_bfloat16", "mixed_float16"),
    "distribute": one_of(*ENGINES) | NOTHING,
    "recipe": one_of(*recipe.NAMES),
    "optimizer": TEXT | MAPPING | NOTHING,
    "schedule": TEXT | MAPPING | NOTHING,
    "learning_rate": _POSITIVE | NOTHING,
    "weight_decay": AUTO | _NOT_NEGATIVE | MAPPING | NOTHING,
    "clip_norm": AUTO | _NOT_NEGATIVE | NOTHING,
    "ema_decay": AUTO | _BELOW_ONE | NOTHING,
    "gradient_multipliers": MAPPING,
    "adversarial": MAPPING | NOTHING,
    "accumulate_steps": whole(1),
    "grad_checkpoint": SWITCH,
    "loss_scale": _POSITIVE | NOTHING,
    "batch_norm_warmup": AUTO | SWITCH,
    "freeze": TEXT | NOTHING,
    "freeze_batch_norm": SWITCH,
    "loss": MAPPING,
    "matching": MAPPING,
    "quantize_aware": SWITCH | MAPPING | NOTHING,
    "teacher": TEXT | NOTHING,
    "teacher_weight": _POSITIVE,
    "epochs": whole(1) | NOTHING,
    "steps": whole(1) | NOTHING,
    "time_budget": _DURATION | NOTHING,
    "batch_size": AUTO | whole(1),
    "steps_per_execution": whole(1),
    "jit_compile": AUTO | SWITCH,
    "run_eagerly": SWITCH,
    "one_batch": SWITCH,
    "seed": whole(0),
    "deterministic": SWITCH,
    "augment": _AUGMENT,
    "flip_probability": _SHARE,
    "scale_jitter": AUTO | many(_POSITIVE, "[lowest, highest] factor", count=2),
    "pad_rgb": many(_PIXEL, "three numbers from 0 to 255", count=3) | NOTHING,
    "postprocess": MAPPING,
    "monitor": TEXT,
    "evaluate_every": whole(0),
    "validation_losses": SWITCH,
    "save_every_steps": whole(1) | NOTHING,
    "save_every_minutes": _POSITIVE | NOTHING,
    "keep": whole(1),
    "keep_every_hours": _POSITIVE | NOTHING,
    "tensorboard": AUTO | SWITCH,
    "profile": _STEPS | NOTHING,
    "verbose": AUTO | _LINES,
}
