"""The arguments of each subcommand, and what its `run` makes of them."""

import argparse
import inspect

import pytest
from support import programs

from effdet_keras import cli
from effdet_keras._internal.extras import extra
from effdet_keras.cli import arguments
from effdet_keras.data import known_formats
from effdet_keras.data.problems import ON_ERROR
from effdet_keras.export.registry import OPTIONS
from effdet_keras.extras.serving.command import Limits
from effdet_keras.predictor import RUNTIMES
from effdet_keras.runs.configuration import RunConfiguration

# The names that `run` takes as `**...`, and that flags are made of.
FIELDS = {
    "train": set(RunConfiguration.__dataclass_fields__),
    "forecast": set(RunConfiguration.__dataclass_fields__),
    "choose": set(RunConfiguration.__dataclass_fields__),
    "serve": set(Limits.__dataclass_fields__),
    "export": set(OPTIONS),
}


def module_of(name):
    module = cli.COMMANDS[name]
    return extra(module) if isinstance(module, str) else module


def parser_of(name):
    """The parser of a subcommand, without `--debug`, which is not of its own."""
    parser = argparse.ArgumentParser(name)
    module_of(name).add_arguments(parser)
    return parser


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_run_takes_the_arguments_of_the_parser_with_the_same_defaults(name):
    parameters = inspect.signature(module_of(name).run).parameters.values()
    named = {one.name: one for one in parameters if one.kind is not one.VAR_KEYWORD}
    found = {}
    for action in parser_of(name)._actions:
        if action.dest != "help":
            found.setdefault(action.dest, action)  # of an alias, the first
    assert set(named) <= set(found) <= set(named) | FIELDS.get(name, set())
    for dest, action in found.items():
        is_field = dest not in named
        if is_field or action.default == argparse.SUPPRESS:
            assert action.default == argparse.SUPPRESS  # `run` has the default
        elif action.required or (action.nargs == "*" and not action.option_strings):
            assert named[dest].default is inspect.Parameter.empty, dest
        else:
            default = named[dest].default
            is_list = isinstance(default, tuple)
            assert action.default == (list(default) if is_list else default), dest


def test_the_choices_are_the_names_of_formats_and_runtimes():
    assert list(known_formats.FORMATS) == list(arguments.DATASET_FORMATS)
    assert arguments.ON_ERROR == ON_ERROR
    assert set(arguments.RUNTIMES) == {"auto", "keras", *RUNTIMES}
    (to,) = (a for a in parser_of("convert")._actions if a.dest == "to")
    written = [name for name, one in known_formats.FORMATS.items() if one.write]
    assert list(to.choices) == written


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_what_reads_datasets_takes_what_the_warning_of_images_without_txt_says(name):
    """`--unlabelled`, which three of eleven commands had."""
    actions = {action.dest: action for action in parser_of(name)._actions}
    formats = tuple(getattr(actions.get("format"), "choices", None) or ())
    reads = formats == arguments.DATASET_FORMATS or "evaluate" in actions
    assert ("unlabelled" in actions) == reads


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_what_reads_datasets_takes_the_options_of_a_reader(name):
    """`--reader-option`, which only `convert` had."""
    actions = {action.dest: action for action in parser_of(name)._actions}
    assert ("reader_options" in actions) == ("unlabelled" in actions)


def test_options_of_a_reader_are_names_and_values(capsys):
    parser = parser_of("train")
    words = ["DATA", "--out", "OUT"]
    assert "reader_options" not in vars(parser.parse_args(words))
    words += ["--reader-option", "class_attribute=a=b", "--reader-option"]
    given = parser.parse_args([*words, "one_based=False"])
    assert given.reader_options == {"class_attribute": "a=b", "one_based": False}
    for wrong in ("one_based", "one_based=", "=no"):
        with pytest.raises(SystemExit):
            parser.parse_args([*words, wrong])
        said = capsys.readouterr().err
        assert "--reader-option expects NAME=VALUE" in said and repr(wrong) in said


# They read what can be read, and say what they leave out.
READ_WHAT_THEY_CAN = {"inspect", "selftest", "label-next"}


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_what_stops_at_an_error_of_a_dataset_takes_what_the_error_says(name):
    """`--skip-errors`, which only `convert` had."""
    actions = {action.dest: action for action in parser_of(name)._actions}
    stops = "unlabelled" in actions and name not in READ_WHAT_THEY_CAN
    assert ("on_error" in actions) == stops
    if stops:
        assert actions["on_error"].option_strings == ["--skip-errors"]
        assert actions["on_error"].const == "skip"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "DATA", "--image-size"], "a number of pixels, or auto"),
        (["choose", "DATA", "--out", "OUT", "--sizes"], "such as 192x256"),
        (
            ["label-next", "RUN", "IMAGES", "--to=coco", "--out=OUT"]
            + ["--score-threshold"],
            "a number from 0 to 1, or best",
        ),
    ],
    ids=lambda words: words[0],
)
def test_text_that_is_no_number_is_told_what_is_expected(words, message, capsys):
    """It said `invalid _size value`, with the name of a function."""
    with pytest.raises(SystemExit):
        cli.main([*words, "abc"])
    said = capsys.readouterr().err
    assert f"{words[-1]}: expected" in said
    assert message in said and "Received: 'abc'" in said


@pytest.mark.parametrize("name", ["inspect", "train"])
def test_a_size_is_one_number_or_two(name, capsys):
    parser = parser_of(name)
    words = ["DATA", "--out", "OUT", "--image-size"]
    assert parser.parse_args([*words, "64"]).image_size == 64
    assert parser.parse_args([*words, "64", "96"]).image_size == (64, 96)
    with pytest.raises(SystemExit):
        parser.parse_args([*words, "1", "2", "3"])
    assert "--image-size takes one number, or two" in capsys.readouterr().err
    if name == "train":
        assert parser.parse_args([*words, "auto"]).image_size == "auto"
        with pytest.raises(SystemExit):
            parser.parse_args([*words, "auto", "64"])
        assert "one number, or two, or auto" in capsys.readouterr().err


def test_the_help_needs_no_docstrings():
    """Which `python -OO` leaves out."""
    said = programs.run_alone("-OO", "-m", "effdet_keras", "train", "--help")
    assert "Trains a detector on a dataset" in said and "--learning-rate RATE" in said
