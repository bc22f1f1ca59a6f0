"""A command whose output nobody reads any more."""

import contextlib
import os

import pytest

from effdet_keras.cli.closed_output import outliving_output


@pytest.mark.smoke
def test_a_program_goes_on_when_nobody_reads_its_output(capfd):
    reading, writing = os.pipe()
    with open(writing, "w") as stream, contextlib.redirect_stdout(stream):
        with outliving_output("it goes on"):
            print("one", flush=True)
            assert os.read(reading, 9) == b"one\n"
            os.close(reading)
            for _ in range(3):
                print("two", flush=True)
        stream.flush()  # as Python does at its end
    assert capfd.readouterr().err == "effdet-keras: it goes on\n"


def test_without_the_context_it_does_not():
    reading, writing = os.pipe()
    os.close(reading)
    with contextlib.suppress(BrokenPipeError), open(writing, "w") as stream:  # noqa: SIM117
        with contextlib.redirect_stdout(stream), pytest.raises(BrokenPipeError):
            print("two", flush=True)
