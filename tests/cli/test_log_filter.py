"""TensorFlow's start-up lines stay away, and nothing else does."""

import os
import subprocess
import sys
import textwrap

import pytest

from effdet_keras.cli.log_filter import LineFilter

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


@pytest.mark.parametrize("size", [1, 7, 64, 4096])
def test_only_notes_are_dropped_however_the_bytes_come(size):
    data = NOTES + SAID + NOTES + SAID + b"no end"
    lines = LineFilter()
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    passed = b"".join(map(lines.feed, pieces)) + lines.end()
    assert passed == SAID + SAID + b"no end"


def test_a_line_that_is_no_note_need_not_be_complete_to_be_seen():
    lines = LineFilter()
    assert lines.feed(b"50 %") == b""  # it may become a date
    assert lines.feed(b"\r") == b""
    assert lines.feed(b"\n[50 %") == b"50 %\r\n[50 %"
    assert lines.feed(b"]") == b"]"
    assert lines.feed(b"\nI0000 00:00:17.1 1 a.cc:1] ") == b"\n"
    assert lines.end() == b""


def run(code, **options):
    """Runs code within the filter, in a process of its own."""
    code = textwrap.indent(textwrap.dedent(code), "    ")
    code = (
        "import os, sys\n"
        "from effdet_keras.cli.log_filter import tensorflow_notes_dropped\n"
        f"with tensorflow_notes_dropped():\n{code}\n"
    )
    code = f"import sys; sys.argv = ['effdet-keras']\n{code}"
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    environment.update(options)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=environment
    )


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
NOTE, TEXT = NOTES.splitlines(True)[0], b"said by C\n"


@needs_fork
def test_what_c_code_and_python_write_arrives():
    result = run(
        f"""
        os.write(2, {NOTE + TEXT})
        print("said by Python", file=sys.stderr)
        os.system("echo said by a child >&2")
        """
    )
    lines = sorted(result.stderr.splitlines())
    assert lines == [b"said by C", b"said by Python", b"said by a child"]
    assert result.returncode == 0


@needs_fork
def test_a_note_can_be_asked_for():
    code = f"os.write(2, {NOTE + TEXT})"
    assert run(code, TF_CPP_MIN_LOG_LEVEL="0").stderr == NOTE + TEXT
    assert run(code, TF_CPP_MIN_LOG_LEVEL="3").stderr == TEXT


@needs_fork
@pytest.mark.parametrize(
    "crash", ["os.abort()", "import faulthandler; faulthandler._sigsegv()"]
)
def test_the_last_words_of_a_crash_arrive(crash):
    result = run(f"os.write(2, {NOTE}); os.write(2, {TEXT[:-1]}); {crash}")
    assert result.stderr.startswith(TEXT[:-1])
    assert result.returncode < 0
    result = run(f"import faulthandler; faulthandler.enable(); {crash}")
    assert b"Fatal Python error" in result.stderr


@needs_fork
def test_a_traceback_arrives_whole():
    result = run("raise ValueError('planted')")
    assert result.stderr.startswith(b"Traceback")
    assert result.stderr.endswith(b"ValueError: planted\n")
    assert result.returncode == 1


@needs_fork
def test_a_process_that_stays_does_not_hold_up_the_end():
    result = run(
        """
        if os.fork() == 0:
            import time
            os.close(1); time.sleep(4); os._exit(0)
        """
    )
    assert result.returncode == 0
