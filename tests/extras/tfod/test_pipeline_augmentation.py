"""The `data_augmentation_options` of a `pipeline.config` as a run applies them."""

import pathlib

import pytest

from effdet_keras._internal.proto_text import parse
from effdet_keras.extras.tfod.fields import Fields
from effdet_keras.extras.tfod.pipeline_parts import augmentation
from effdet_keras.extras.tfod.preprocessing import STEPS
from effdet_keras.runs.configuration import RunConfiguration

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "migration"
NOT_NEEDED = {
    "normalize_image",
    "subtract_channel_mean",
    "resize_image",
    "scale_boxes_to_pixel_coordinates",
    "random_resize_method",
}
NOT_HERE = {
    "remap_labels",
    "drop_label_probabilistically",
    "convert_class_logits_to_softmax",
}


def read(*options):
    """The fields of a run, the places noted, and the paths that nobody read."""
    text = "".join(f"data_augmentation_options {{ {option} }}\n" for option in options)
    train, noted = parse(text, Fields), []

    def note(message, name, value, reason):
        noted.append(message.place_of(name))

    fields = augmentation(train, note)
    RunConfiguration(**fields)  # which makes each
    return fields, noted, [path for path, _ in train.left()]


def names(*options):
    entries = read(*options)[0]["augment"]
    return [x if isinstance(x, str) else x["name"] for x in entries]


def test_every_step_of_the_api_is_done_or_told():
    lines = (GOLDEN / "tfod_fields.txt").read_text().splitlines()
    steps = [x.split()[1] for x in lines if x.startswith("data_augmentation_options")]
    assert len(steps) == 39
    for step in steps:
        fields, noted, _ = read(f"{step} {{ }}", "rgb_to_gray { }")
        # Behind it there is another, so that none is done at the end.
        done = [x if isinstance(x, str) else x["name"] for x in fields["augment"]][:-1]
        if step in NOT_HERE:
            assert (done, noted) == ([], [f"data_augmentation_options.{step}"])
        elif step in NOT_NEEDED:
            assert (done, noted) == ([], [])
        else:
            expected = "auto_augment_v0" if step == "autoaugment_image" else step
            assert (done, noted) == ([expected], [])
        assert fields["flip_probability"] == 0 and fields["scale_jitter"] == (1, 1)
    assert set(STEPS) <= set(steps)


def test_the_order_is_that_of_the_file_and_one_step_may_come_twice():
    options = (
        "random_rotation90 { }",
        "random_horizontal_flip { }",
        "ssd_random_crop { }",
        "random_rotation90 { probability: 0.2 }",
        "autoaugment_image { policy_name: 'v2' }",
        "rgb_to_gray { }",
    )
    expected = [option.split()[0] for option in options]
    expected[4] = "auto_augment_v2"
    assert names(*options) == expected
    fields, noted, left = read(*options)
    turns = [fields["augment"][i]["probability"] for i in (0, 3)]
    assert turns == [0.5, 0.2]
    made = RunConfiguration(**fields).new_augmentations()
    assert [getattr(x, "step", "auto_augment_v2") for x in made] == expected
    assert (noted, left) == ([], [])


@pytest.mark.parametrize(
    ("options", "flip", "jitter", "rest"),
    [
        (("flip", "square"), 0.3, (0.5, 1.5), []),
        (("flip", "gray", "square"), 0.0, (0.5, 1.5), ["flip", "rgb_to_gray"]),
        (("square", "flip"), 0.3, (1.0, 1.0), ["square"]),
    ],
)
def test_flip_and_scale_jitter_are_done_last_only_where_they_come_last(
    options, flip, jitter, rest
):
    texts = {
        "flip": "random_horizontal_flip { probability: 0.3 }",
        "square": "random_scale_crop_and_pad_to_square "
        "{ scale_min: 0.5 scale_max: 1.5 output_size: 640 }",
        "gray": "rgb_to_gray { }",
    }
    whole = {key: text.split()[0] for key, text in texts.items()}
    chosen = [texts[option] for option in options]
    fields, noted, left = read(*chosen)
    assert (fields["flip_probability"], fields["scale_jitter"]) == (flip, jitter)
    assert names(*chosen) == [whole.get(name, name) for name in rest]
    assert ("pad_rgb" in fields) == (options[-1] == "square")
    assert (noted, left) == ([], [])


def test_fields_are_those_of_the_file_and_else_the_defaults_of_the_api():
    fields, noted, left = read(
        "random_crop_pad_image { min_area: 0.4 clip_boxes: false "
        "min_padded_size_ratio: [1, 1.5] pad_color: [1, 2, 3] }",
        "ssd_random_crop_pad { operations { min_area: 0.5 max_area: 1 "
        "min_aspect_ratio: 0.5 max_aspect_ratio: 2 pad_color_g: 9 } }",
    )
    crop, ssd = fields["augment"]
    assert crop == {
        "name": "random_crop_pad_image",
        "min_object_covered": 1.0,
        "min_aspect_ratio": 0.75,
        "max_aspect_ratio": 1.33,
        "min_area": 0.4,
        "max_area": 1.0,
        "overlap_thresh": 0.3,
        "random_coef": 0.0,
        "min_padded_size_ratio": (1.0, 1.5),
        "max_padded_size_ratio": (2.0, 2.0),
        "pad_color": (1.0, 2.0, 3.0),
    }
    (operation,) = ssd["operations"]
    assert operation["min_object_covered"] == operation["overlap_thresh"] == 0.0
    assert operation["pad_color"] == (0.0, 9.0, 0.0)  # there three fields
    # What nobody read is told by `leftovers` of `pipeline_config`.
    assert noted == []
    assert left == ["data_augmentation_options.random_crop_pad_image.clip_boxes"]


def test_a_run_with_steps_is_written_and_read_as_it_is(tmp_path):
    fields = read(
        "ssd_random_crop_pad { operations { min_area: 0.5 max_area: 1 "
        "min_aspect_ratio: 0.5 max_aspect_ratio: 2 } }",
        "random_pad_image { pad_color: [1, 2, 3] }",
        "autoaugment_image { }",
    )[0]
    run = RunConfiguration(data="cells", **fields)
    run.write(tmp_path / "run.yaml")
    again = RunConfiguration.read(tmp_path / "run.yaml")
    assert again == run and again.augment == fields["augment"]
    made, remade = (one.new_augmentations() for one in (run, again))
    assert repr(made) == repr(remade)
    assert made[0].parameters["operations"][0]["min_area"] == 0.5
