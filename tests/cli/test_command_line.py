"""The command line itself: help, start-up, errors, exit statuses."""

import functools
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import warnings

import pytest

from effdet_keras import cli, errors
from effdet_keras.extras.demo import command as demo

COMMANDS = tuple(cli.COMMANDS)
HEAVY = ("tensorflow", "keras", "numpy", "PIL", "jax", "torch", "matplotlib")


@pytest.fixture
def stand_in(monkeypatch):
    """A function that puts another one in the place of that of `effdet-keras demo`."""

    def replace(run):
        monkeypatch.setattr(demo, "run", functools.wraps(demo.run)(run))

    return replace


@pytest.fixture
def failing(stand_in):
    """A function that makes `effdet-keras demo` raise an error."""

    def plant(error):
        def run(**arguments):
            raise error

        stand_in(run)

    return plant


def run_python(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, **options
    )


@pytest.mark.parametrize("arguments", [[], *([name] for name in COMMANDS)], ids=str)
def test_help_imports_nothing_heavy(arguments):
    result = run_python("-X", "importtime", "-m", "effdet_keras", *arguments, "--help")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("usage: effdet-keras")
    imported = set(re.findall(r"\| +([\w.]+)$", result.stderr, re.MULTILINE))
    assert "effdet_keras.cli" in imported
    assert not {name.split(".")[0] for name in imported} & set(HEAVY)


def test_the_models_register_what_the_whole_package_does():
    """So the command, which imports no more than it uses, loads every archive."""
    code = textwrap.dedent(
        """
        import sys
        sys.argv = ["effdet-keras"]
        import effdet_keras.model.efficientdet, keras
        def ours():
            names = keras.saving.get_custom_objects()
            return {name for name in names if name.startswith("effdet_keras>")}
        from effdet_keras.train.recipe import Recipe
        adversarial = {"class_name": "AdvProp", "config": {"epsilon": 2.0},
                       "registered_name": "effdet_keras>AdvProp"}
        Recipe.from_config({"adversarial": {"module": None, **adversarial}})
        few = ours()
        sys.argv = ["train.py"]
        import importlib, effdet_keras
        importlib.reload(effdet_keras)
        assert effdet_keras.EfficientDet and len(few) > 5
        # No file of a model holds an augmentation.
        of_models = {name for name in ours() if ".augment." not in
                     keras.saving.get_registered_object(name).__module__}
        print(sorted(of_models - few))
        """
    )
    result = run_python("-c", code, env=_with_package())
    assert result.stdout == "[]\n", result.stderr


def _with_package():
    root = str(pathlib.Path(cli.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    return environment


def test_no_command_prints_the_help(capsys):
    assert cli.main([]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("usage: effdet-keras") and not said.out
    for name in COMMANDS:
        assert re.search(rf"^    {name}\b", said.err, re.MULTILINE)


def test_wrong_usage_has_a_status_of_its_own(capsys):
    for arguments in (["paint"], ["demo", "--epochs", "two"]):
        with pytest.raises(SystemExit, match="^2$"):
            cli.main(arguments)
        assert capsys.readouterr().err.startswith("usage: effdet-keras")


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (errors.InvalidValueError("`epochs` must be 1"), 1, "`epochs` must be 1"),
        (ImportError("needs x"), 1, "needs x"),
        (FileNotFoundError("There is no 'x'"), 1, "There is no 'x'"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=repr,
)
def test_what_is_no_bug_is_one_line(failing, capsys, error, status, said):
    failing(error)
    assert cli.main(["demo"]) == status
    assert capsys.readouterr() == ("", f"effdet-keras: {said}\n")


def test_a_bug_shows_where_it_is_and_that_it_is_one(failing, capsys):
    failing(ValueError("planted"))
    assert cli.main(["demo"]) == 1
    *traceback, last = capsys.readouterr().err.splitlines()
    assert traceback[0].startswith("Traceback")
    assert "planted" in traceback[-1] and "in run" in "".join(traceback)
    assert last.startswith("effdet-keras: this is a fault of the program")
    assert "report" in last


def test_debug_shows_where_every_error_came_from(failing, capsys):
    failing(errors.InvalidValueError("planted"))
    assert cli.main(["demo", "--debug"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("Traceback") and "InvalidValueError" in said[-2]
    assert said[-1] == "effdet-keras: planted"


def test_a_warning_is_one_line(stand_in, capsys):
    stand_in(lambda **_: warnings.warn("2 images are left out", stacklevel=1))
    assert cli.main(["demo"]) == 0
    assert capsys.readouterr().err == "effdet-keras: 2 images are left out\n"


_TERMINATED = """
import os, signal, sys
sys.argv = ["effdet-keras", "inspect", "DATA"]
from effdet_keras import cli
from effdet_keras.extras.data_check import command as inspect

inspect.run = lambda data: os.kill(os.getpid(), signal.SIGTERM)
inspect.run.__annotations__["data"] = str
sys.exit(cli.console())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX'")
def test_a_command_that_is_terminated_says_so_in_a_line():
    result = subprocess.run([sys.executable, "-c", _TERMINATED], capture_output=True)
    assert result.returncode == 143
    assert result.stderr.splitlines()[-1] == b"effdet-keras: terminated"
