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
from PIL import Image
from support.kinds import slow_but
from support.tiny import LITE0, lively_model

from effdet_keras import cli, errors
from effdet_keras.extras.demo import command as demo
from effdet_keras.weights.archive import write_archive

COMMANDS = (
    *("demo", "inspect", "convert", "selftest", "train", "eval", "predict"),
    *("benchmark", "export", "inspect-weights", "import"),
)
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
    result = run_python(
        *("-X", "importtime", "-m", "effdet_keras", *arguments, "--help")
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("usage: effdet-keras")
    imported = set(re.findall(r"\| +([\w.]+)$", result.stderr, re.MULTILINE))
    assert "effdet_keras.cli" in imported
    assert not {name.split(".")[0] for name in imported} & set(HEAVY)


def test_the_installed_script_starts_lightly_too(tmp_path):
    script = tmp_path / "effdet-keras"
    script.write_text(
        "import sys\nfrom effdet_keras.cli import console\n"
        "try:\n    console()\n"
        "finally:\n    print(sorted({'keras', 'tensorflow'} & set(sys.modules)))\n"
    )
    result = run_python(str(script), "--version", env=_with_package())
    assert result.stdout.splitlines()[1:] == ["[]"], result.stderr


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
    for arguments in (["paint"], ["convert"], ["demo", "--epochs", "two"]):
        with pytest.raises(SystemExit, match="^2$"):
            cli.main(arguments)
        assert capsys.readouterr().err.startswith("usage: effdet-keras")


def test_version_is_told(capsys):
    with pytest.raises(SystemExit, match="^0$"):
        cli.main(["--version"])
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (errors.InvalidValueError("`epochs` must be 1"), 1, "`epochs` must be 1"),
        (errors.MissingPackageError("Drawing needs x"), 1, "Drawing needs x"),
        (FileNotFoundError("There is no 'x'"), 1, "There is no 'x'"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (BrokenPipeError(), 1, None),
    ],
    ids=repr,
)
def test_what_is_no_bug_is_one_line_at_most(failing, capsys, error, status, said):
    failing(error)
    assert cli.main(["demo"]) == status
    expected = "" if said is None else f"effdet-keras: {said}\n"
    assert capsys.readouterr() == ("", expected)


@pytest.mark.parametrize("error", [ValueError("planted"), KeyError("planted")])
def test_a_bug_shows_where_it_is_and_that_it_is_one(failing, capsys, error):
    failing(error)
    assert cli.main(["demo"]) == 1
    *traceback, last = capsys.readouterr().err.splitlines()
    assert traceback[0].startswith("Traceback")
    assert "planted" in traceback[-1] and "in run" in "".join(traceback)
    assert last.startswith("effdet-keras: this is a fault of the program")
    assert "report" in last


def test_a_module_that_is_not_installed_is_no_bug(failing, capsys):
    failing(ModuleNotFoundError("No module named 'yaml'", name="yaml"))
    assert cli.main(["demo"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("effdet-keras: this needs the module 'yaml'")
    failing(ModuleNotFoundError("planted", name="effdet_keras.nowhere"))
    assert cli.main(["demo"]) == 1
    assert "this is a fault of the program" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--debug", "demo"], ["demo", "--debug"]])
def test_debug_shows_where_every_error_came_from(failing, capsys, arguments):
    failing(errors.InvalidValueError("planted"))
    assert cli.main(arguments) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("Traceback") and "InvalidValueError" in said[-2]
    assert said[-1] == "effdet-keras: planted"


def test_a_warning_is_one_line(stand_in, capsys):
    stand_in(lambda **_: warnings.warn("2 images are left out", stacklevel=1))
    assert cli.main(["demo"]) == 0
    assert capsys.readouterr().err == "effdet-keras: 2 images are left out\n"


def test_the_installed_command_gives_the_subcommands_status(stand_in, monkeypatch):
    stand_in(lambda **arguments: 7)
    monkeypatch.setattr(sys, "argv", ["effdet-keras", "demo"])
    assert cli.console() == 7


@pytest.mark.parametrize("given", [["--out", "memory://a/b"], ["--out=memory:/a"]])
def test_a_command_takes_no_folder_that_ends_with_it(
    given, stand_in, monkeypatch, capsys
):
    stand_in(lambda **arguments: pytest.fail("it ran"))
    monkeypatch.setattr(sys, "argv", ["effdet-keras", "demo", *given])
    assert cli.console() == 2
    assert "gone when it ends: name a folder" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_terminal_and_speaks_the_words_of_the_docs(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    actions = cli._parser()._subparsers._group_actions
    text = actions[0].choices[name].format_help()
    assert max(map(len, text.splitlines())) <= 90  # long lists of choices
    for word in ("picture", "data set", " form ", "None"):
        assert word not in text


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "pets.keras"
    write_archive(lively_model(backbone=LITE0), path)
    return path


@pytest.mark.tensorflow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the filter needs fork")
@pytest.mark.parametrize(
    "command",
    slow_but(["inspect-weights"], ["inspect-weights", "predict", "export"]),
)
def test_standard_error_stays_empty_when_all_goes_well(command, archive, tmp_path):
    image, out = tmp_path / "image.png", tmp_path / "out"
    Image.new("RGB", (20, 10)).save(image)
    more = {"predict": [image], "export": [f"{out}.tflite"]}.get(command, [])
    if more and command == "export":
        pytest.importorskip("ai_edge_litert")
    arguments = map(str, [archive, *more])
    result = run_python(
        *("-m", "effdet_keras", command, *arguments), env=_with_package()
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout and not result.stderr


@pytest.mark.tensorflow
def test_a_real_error_is_all_that_standard_error_has(tmp_path):
    out = tmp_path / "out.keras"
    result = run_python(
        *("-m", "effdet_keras", "predict", str(out), "image.png"), env=_with_package()
    )
    assert result.returncode == 1
    assert result.stderr.startswith("effdet-keras: ")
    assert len(result.stderr.splitlines()) == 1 and str(out) in result.stderr


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


def run_console(*arguments, shell="", **environment):
    """The command as a process, with `shell` behind it, such as `>&-`."""
    program = "import sys; from effdet_keras import cli; sys.exit(cli.console())"
    return subprocess.run(
        ["bash", "-c", f'"$0" -c "$1" "${{@:2}}" {shell}', sys.executable, program]
        + [str(argument) for argument in arguments],
        capture_output=True,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    ("name", "shown", "encoding"),
    [
        ("a\x1b]0;t\x07\x1b[2J\x9b31m", rb"a\x1b]0;t\x07\x1b[2J\x9b31m", "utf-8"),
        ("K\u00e4fer", rb"K\xe4fer", "ascii"),
    ],
)
def test_names_do_nothing_to_the_terminal_and_fit_it(tmp_path, name, shown, encoding):
    path = tmp_path / f"{name}.tflite"
    result = run_console("predict", path, tmp_path, PYTHONIOENCODING=encoding)
    assert result.returncode == 1 and b"fault of the program" not in result.stderr
    assert shown + b".tflite" in result.stderr
    assert b"\x1b" not in result.stderr and b"\x07" not in result.stderr


@pytest.mark.parametrize("shell", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_fault(tmp_path, shell):
    result = run_console("predict", "no.tflite", tmp_path, shell=shell)
    assert result.returncode == 1 and b"Traceback" not in result.stderr
    if "2>" not in shell:
        assert b"no.tflite" in result.stderr
