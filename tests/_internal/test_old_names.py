"""Old names of fields work for one release, with a warning; files keep working."""

import dataclasses
import warnings

import keras
import pytest

import effdet_keras as ek
from effdet_keras._internal.old_names import renamed_fields, with_new_names
from effdet_keras.runs.configuration import RunConfiguration


@renamed_fields(old="new")
@dataclasses.dataclass(frozen=True)
class Options:
    new: int = 1
    other: int = 2


def test_an_old_name_is_an_argument_and_an_attribute_with_a_warning():
    with pytest.warns(DeprecationWarning, match="`Options.old` is `Options.new`"):
        options = Options(old=5)
    assert options == Options(new=5) == dataclasses.replace(Options(), new=5)
    with pytest.warns(DeprecationWarning, match="`Options.new` now"):
        assert options.old == 5


def test_both_names_at_once_are_an_error():
    with pytest.raises(TypeError, match="leave `old` out"):
        Options(old=5, new=6)


def test_new_names_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert with_new_names(Options, {"old": 3, "other": 4}) == {"new": 3, "other": 4}
        assert Options(**with_new_names(Options, {"old": 3})).new == 3


@pytest.mark.parametrize(
    "made, old, new",
    [
        (ek.DetectionLoss(normalizer="one"), "divide_by", "normalizer"),
        (
            ek.matching.IoUMatching(normalized_coordinates=True),
            "in_fractions",
            "normalized_coordinates",
        ),
    ],
)
def test_archives_with_the_old_names_load_without_a_warning(made, old, new):
    config = keras.saving.serialize_keras_object(made)
    config["config"][old] = config["config"].pop(new)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        assert keras.saving.deserialize_keras_object(config) == made


def test_files_of_runs_with_the_old_names_are_read():
    run = RunConfiguration(matching={"in_fractions": True}, loss={"divide_by": "one"})
    new = RunConfiguration(
        matching={"normalized_coordinates": True}, loss={"normalizer": "one"}
    )
    ours, theirs = run.recipe_arguments(), new.recipe_arguments()
    assert (ours["matching"], ours["loss"]) == (theirs["matching"], theirs["loss"])


def test_an_augmentation_with_its_old_name_warns():
    with pytest.warns(
        DeprecationWarning, match="`augment.Sometimes` is `augment.RandomApply`"
    ):
        assert ek.augment.Sometimes is ek.augment.RandomApply
