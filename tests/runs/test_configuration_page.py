"""docs/run_configuration.md has each field of a run, its default and an example."""

import dataclasses
import inspect
import pathlib
import re

import pytest
import yaml

from effdet_keras.detect.postprocess import Postprocess
from effdet_keras.errors import InvalidValueError
from effdet_keras.extras.advprop import AdvProp
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.train.losses import DetectionLoss
from effdet_keras.train.matching import IoUMatching

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "run_configuration.md"
MAPPINGS = {
    "loss": DetectionLoss,
    "matching": IoUMatching,
    "postprocess": Postprocess,
    "adversarial": AdvProp,
}
ROW = re.compile(r"^\| `([\w.]+)` \| (.*?) \| `(.*?)` \| `(.*?)` \| (.*) \|$", re.M)


def rows(text):
    """Name, type, default, example and sentence of each row of the page's tables."""
    return ROW.findall(text)


def defaults_of(cls):
    fields = dataclasses.fields(cls)
    return {
        field.name: field.default_factory()
        if field.default is dataclasses.MISSING
        else field.default
        for field in fields
    }


def known_defaults():
    """Every field that a run has, those of its mappings as `mapping.field`."""
    known = defaults_of(RunConfiguration)
    for mapping, cls in MAPPINGS.items():
        known |= {f"{mapping}.{name}": v for name, v in defaults_of(cls).items()}
    arguments = inspect.signature(EfficientDet.quantize_aware).parameters.values()
    known |= {
        f"quantize_aware.{argument.name}": argument.default
        for argument in arguments
        if argument.name != "self"
    }
    return known


def with_lists(value):
    return list(value) if isinstance(value, tuple) else value


@pytest.fixture(scope="module")
def page():
    return rows(PAGE.read_text())


def test_the_page_has_each_field_once_and_no_other(page):
    names = [name for name, *_ in page]
    assert sorted(names) == sorted(known_defaults())


def test_the_page_has_the_default_of_each_field(page):
    known = known_defaults()
    wrong = {
        name: default
        for name, _, default, *_ in page
        if yaml.safe_load(default) != with_lists(known[name])
    }
    assert wrong == {}


def test_a_run_takes_each_example_and_it_is_not_the_default(page):
    for name, _, default, example, _ in page:
        value = yaml.safe_load(example)
        assert value != yaml.safe_load(default), name
        field, is_inner, key = name.partition(".")
        fields = {field: {key: value} if is_inner else value}
        if field == "val_file_pattern":  # stands beside the files to train on
            fields["train_file_pattern"] = "train-*"
        if field in ("name_map", "checkpoint_type"):  # of a file
            fields["weights"] = "cats.weights.h5"
        run = RunConfiguration().replace(**fields)
        if not is_inner:
            assert run.to_dict()[field] == value, name


def test_each_row_has_a_type_and_one_sentence(page):
    for name, kind, _, _, sentence in page:
        assert kind.strip(), name
        assert sentence.endswith("."), name
        assert ". " not in sentence.replace("e.g. ", ""), name


def test_the_check_sees_a_field_that_does_not_exist_and_a_wrong_example():
    row = "| `monitors` | string | `AP` | `AP50` | A number. |"
    ((name, *_),) = rows(row)
    assert name not in known_defaults()
    with pytest.raises(InvalidValueError, match="monitors"):
        RunConfiguration().replace(**{name: "AP50"})


def test_the_yaml_file_on_the_page_is_a_configuration():
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    run = RunConfiguration().replace(**yaml.safe_load(text))
    assert (run.model, run.epochs, run.loss) == ("efficientdet-d1", 50, {"gamma": 2.0})
