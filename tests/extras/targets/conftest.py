"""Exports by the first command of each target's page, once for each file of tests."""

import shlex

import keras
import pytest
from support.target_pages import commands_of
from support.tiny import spread, tiny_model

import effdet_keras as ek
from effdet_keras import cli
from effdet_keras.weights.archive import write_archive


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    return spread(tiny_model())


@pytest.fixture(scope="module")
def workplace(model, tmp_path_factory):
    """A folder with an archive, for `runs/cats`, and `DATA`, as the pages have them."""
    folder = tmp_path_factory.mktemp("targets")
    write_archive(model, folder / "archive.keras")
    data = folder / "DATA"
    ek.data.write_shapes(data, num_train=3, num_valid=2, image_size=64)
    return folder


@pytest.fixture(scope="module")
def exported(workplace):
    """Runs the first command of a target's page once, with flags; gives its folder."""
    done = {}

    def run(target, *flags):
        if (target, flags) not in done:
            words = shlex.split(commands_of(target)[0])
            assert words[:3] == ["effdet-keras", "export", "runs/cats"]
            out = f"{len(done)}/{words[3]}"  # each has a folder of its own
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(workplace)
                assert (
                    cli.main(["export", "archive.keras", out, *words[4:], *flags]) == 0
                )
            done[target, flags] = workplace / out
        return done[target, flags]

    return run
