"""The command line itself: help, start-up, errors, exit statuses."""

import os
import pathlib
import re
import subprocess
import sys
import textwrap
import warnings

import pytest
from support.kinds import slow_but

import effdet_keras as ek
from effdet_keras import cli, errors
from effdet_keras._internal.tensorflow_log import worth_telling
from effdet_keras.cli import predict
from effdet_keras.extras.demo import command as demo

COMMANDS = tuple(cli.COMMANDS)
HEAVY = ("tensorflow", "keras", "numpy", "PIL", "jax", "torch", "matplotlib")


@pytest.fixture
def stand_in(monkeypatch):
    """A function that puts another one in the place of that of `effdet-keras demo`."""

    def replace(run):
        monkeypatch.setattr(demo, "run", run)

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


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_usage_of_a_subcommand_shows_its_own_usage(name, capsys):
    needed = {
        "demo": [],
        "train": ["DATA", "--out", "OUT"],
        "forecast": ["DATA", "--out", "OUT"],
        "choose": ["DATA", "--out", "OUT"],
        "convert": ["DATA", "OUT", "--to", "voc"],
        "label-next": ["RUN", "IMAGES", "--out", "OUT", "--to", "coco"],
    }
    one, two = ["A"], ["A", "B"]
    others = dict.fromkeys(("inspect", "selftest", "serve", "benchmark"), one)
    others |= {"inspect-weights": one, **needed}
    with pytest.raises(SystemExit, match="^2$"):
        cli.main([name, *others.get(name, two), "--no-such-flag=3"])
    said = capsys.readouterr().err
    assert said.startswith(f"usage: effdet-keras {name} [-h]")
    assert "unrecognized arguments" in said and "--no-such-flag=3" in said


def test_a_flag_that_is_misspelt_is_told_the_one_that_was_meant(capsys):
    with pytest.raises(SystemExit):
        cli.main(["demo", "--epoks=3"])
    said = capsys.readouterr().err
    assert said.endswith("--epoks=3. Did you mean '--epochs'?\n")


def test_predict_and_export_name_the_threshold_alike(monkeypatch, capsys):
    taken = []

    def predicted(model, inputs, **options):
        taken.append(options["score_threshold"])
        return 0

    monkeypatch.setattr(predict, "run", predicted)
    for flag in ("--score-threshold", "--score"):  # its older name
        assert cli.main(["predict", "MODEL", "IMAGE", flag, "0.4"]) == 0
    assert cli.main(["predict", "MODEL", "IMAGE"]) == 0
    assert taken == [0.4, 0.4, 0.3]
    for name in ("predict", "export"):
        with pytest.raises(SystemExit, match="^0$"):
            cli.main([name, "--help"])
        said = capsys.readouterr().out
        assert "--score-threshold" in said and "--score " not in said


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
    assert last.startswith("effdet-keras: internal error. Please report")
    assert last.endswith(f"effdet-keras {ek.__version__}.")


@pytest.mark.parametrize("arguments", [["demo", "--debug"], ["--debug", "demo"]])
def test_debug_shows_where_every_error_came_from(arguments, failing, capsys):
    failing(errors.InvalidValueError("planted"))
    assert cli.main(arguments) == 1
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

inspect.run = lambda **_: os.kill(os.getpid(), signal.SIGTERM)
sys.exit(cli.console())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX'")
def test_a_command_that_is_terminated_says_so_in_a_line():
    result = subprocess.run([sys.executable, "-c", _TERMINATED], capture_output=True)
    assert result.returncode == 143
    assert result.stderr.splitlines()[-1] == b"effdet-keras: terminated"


LOG = [
    "WARNING: All log messages before absl::InitializeLog() is called are written\n",
    "I0000 00:00:1795804493.070323    7166 port.cc:153] oneDNN custom operations\n",
    "I0000 00:00:1795804493.070641    7166 cudart_stub.cc:31] Could not find cuda "
    "drivers on your machine, GPU will not be used.\n",
    "E0000 00:00:1795804495.340855    7166 cuda_platform.cc:52] failed call to cuInit: "
    "INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)\n",
]


def test_errors_and_other_lines_of_a_log_are_told():
    assert worth_telling(LOG) == []
    told = ["E0000 00:00:1.3 7 cuda_dnn.cc:5] Loaded cuDNN 8\n", "a warning: I0000\n"]
    assert worth_telling([*LOG, *told]) == told
    assert worth_telling(LOG[3:]) == LOG[3:]  # where there is a driver
    assert worth_telling(LOG[3:], has_device=False) == []


_IMPORTS_TENSORFLOW = """
import sys
sys.argv = ["effdet-keras", "inspect", "DATA", *sys.argv[2:]]
from effdet_keras import cli
from effdet_keras._internal import optional_imports
from effdet_keras.extras.data_check import command as inspect

def run(**_):
    optional_imports.MODULE.require()
    import tensorflow as tf
    print(tf.reduce_sum([1, 2]).numpy(), tf.__spec__.name)
    print("said by the program", file=sys.stderr)

inspect.run = run
sys.exit(cli.console())
"""


def run_importing(module, *flags, level=None, **variables):
    """A command that imports TensorFlow, alone or with Keras: what it logs."""
    environment = {**_with_package(), **variables}
    if level is not None:
        environment["TF_CPP_MIN_LOG_LEVEL"] = level
    code = _IMPORTS_TENSORFLOW.replace("MODULE", module)
    result = run_python("-c", code, "DATA", *flags, env=environment)
    assert result.stdout == "3 tensorflow\n", result.stderr
    *log, last = result.stderr.splitlines()
    assert last == "said by the program"
    return log


@pytest.mark.tensorflow
@pytest.mark.parametrize("module", slow_but(["keras"], ["tensorflow", "keras"]))
def test_tensorflow_logs_nothing_unless_the_user_asks_for_it(module):
    assert run_importing(module) == []
    assert run_importing(module, level="0")
    assert run_importing(module, "--debug")


@pytest.mark.extra_packages
def test_tensorflow_logs_nothing_beside_keras_on_another_backend():
    pytest.importorskip("jax")
    variables = {"KERAS_BACKEND": "jax"}
    assert (
        run_importing("keras.require(), optional_imports.tensorflow", **variables) == []
    )


_DIES = """
import sys
sys.argv[0] = "effdet-keras"  # which imports Keras when it needs it
from effdet_keras._internal import optional_imports, tensorflow_log
sys.path.insert(0, sys.argv[1])
tensorflow_log.quiet_tensorflow()
optional_imports.tensorflow.require("`effdet-keras train`")
"""


def test_a_crash_while_tensorflow_is_imported_says_where(tmp_path):
    """Such as that of a processor without the instructions it was built for."""
    (tmp_path / "tensorflow.py").write_text("import os\nos.abort()\n")
    result = run_python("-c", _DIES, tmp_path, env=_with_package())
    assert result.returncode != 0
    assert 'tensorflow.py", line 2 in <module>' in result.stderr


def test_what_an_import_that_fails_has_logged_is_told(tmp_path):
    module = (
        "import os\nos.write(2, b'E0000 00:00:1.3 7 a.cc:5] bad\\n')\nimport absent"
    )
    (tmp_path / "tensorflow.py").write_text(module)
    result = run_python("-c", _DIES, tmp_path, env=_with_package())
    lines = result.stderr.splitlines()
    assert lines[0] == "E0000 00:00:1.3 7 a.cc:5] bad"
    said = "`effdet-keras train` needs tensorflow (No module named 'absent')"
    assert said in lines[-1]


def test_a_command_without_keras_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "keras", None)
    assert cli.main(["train", "DATA", "--out", "OUT"]) == 1
    cure = '`effdet-keras train` needs keras: pip install "keras" "tensorflow"'
    assert cure in capsys.readouterr().err


_STARTED = """
import sys
from effdet_keras._internal.lazy_names import started_as_command

sys.argv = ["-m"]
for flags in (["-m"], ["-I", "-m"], ["-Im"]):
    for module in ("effdet_keras", "other"):
        sys.orig_argv = ["python", *flags, module]
        print(started_as_command())
"""


def test_the_command_is_recognised_however_python_is_started():
    said = run_python("-c", _STARTED, env=_with_package()).stdout
    assert said.split() == ["True", "False"] * 3
