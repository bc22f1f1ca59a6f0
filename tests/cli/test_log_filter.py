"""TensorFlow's start-up lines stay away, and nothing else does."""

import os
import subprocess
import sys
import textwrap

import pytest

NOTES = b"""\
2026-11-21 22:11:11.123456: I tensorflow/core/util/port.cc:153] oneDNN is on
2026-11-21 22:11:11.123456: W tensorflow/tsl/gpu.cc:3] Cannot dlopen some libraries
To enable the following instructions: AVX2 FMA, rebuild TensorFlow with the flags.
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795300356.108471   16899 port.cc:153] oneDNN custom operations are on.
W0000 00:00:1795300356.108471   16899 port.cc:153] something
E0000 00:00:1795300356.108471   16899 cuda_dnn.cc:8310] Unable to register cuDNN
INFO: Created TensorFlow Lite XNNPACK delegate for CPU.
fully_quantize: 0, inference_type: 6, input_inference_type: UINT8
"""
SAID = b"""\
fully tested
I read 3 images
WARNING: 3 images are left out
2026-11-21 is the date
E0000 00:00:1795300356.108471   16899 executor.cc:1] out of memory
F0000 00:00:1795300356.108471   16899 check.cc:1] Check failed
Fatal Python error: Segmentation fault
"""
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def run(code, **options):
    """Runs code within the filter, in a process of its own."""
    code = (
        "import os, sys; sys.argv = ['effdet-keras']\n"
        "from effdet_keras.cli.log_filter import tensorflow_notes_dropped\n"
        "with tensorflow_notes_dropped():\n"
        f"{textwrap.indent(textwrap.dedent(code), '    ')}\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    environment.update(options)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=environment
    )


def test_only_notes_are_dropped_of_what_c_code_python_and_children_write():
    result = run(
        f"""
        os.write(2, {NOTES + SAID + NOTES + SAID})
        print("said by Python", file=sys.stderr)
        os.system("echo said by a child >&2")
        os.write(2, b"no end")
        """
    )
    assert result.returncode == 0
    lines = result.stderr.splitlines()
    lines.remove(b"said by Python")  # on its own way
    expected = (SAID + SAID).splitlines()
    assert lines == [*expected, b"said by a child", b"no end"]


def test_a_note_can_be_asked_for():
    code = f"os.write(2, {NOTES + SAID})"
    assert run(code, TF_CPP_MIN_LOG_LEVEL="0").stderr == NOTES + SAID
    assert run(code, TF_CPP_MIN_LOG_LEVEL="3").stderr == SAID


@pytest.mark.parametrize(
    "crash", ["os.abort()", "import faulthandler; faulthandler._sigsegv()"]
)
def test_the_last_words_of_a_crash_arrive(crash):
    result = run(f"os.write(2, {NOTES}); os.write(2, {SAID[:-1]}); {crash}")
    assert result.stderr.startswith(SAID[:-1])
    assert result.returncode < 0
    result = run(f"import faulthandler; faulthandler.enable(); {crash}")
    assert b"Fatal Python error" in result.stderr
    result = run("raise ValueError('planted')")
    assert result.stderr.startswith(b"Traceback")
    assert result.stderr.endswith(b"ValueError: planted\n")


def test_a_process_that_stays_does_not_hold_up_the_end():
    result = run(
        """
        if os.fork() == 0:
            import time
            os.close(1); time.sleep(4); os._exit(0)
        """
    )
    assert result.returncode == 0
