"""The command of a run may be given again, whatever was measured for it."""

import pytest

from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.requested import configured, resumed
from effdet_keras.runs.run_folder import RunFolder

CHOSEN = {"batch_size": 16, "epochs": 7, "time_budget": None}
HPARAMS = "learning_rate=0.04,gamma=2.0"


@pytest.fixture
def begun(tmp_path):
    """Begins a run that was asked for by fields and files, and chose some fields."""

    def begin(fields, files=(None, None, None), chosen=CHOSEN):
        configuration, hparams, pipeline = files
        asked = configured(configuration, hparams, fields, pipeline)
        folder = RunFolder(tmp_path / "run")
        folder.begin(asked.replace(**chosen), requested=asked)
        return folder

    return begin


AUTO = {"data": "cells", "batch_size": "auto", "time_budget": "20m"}


@pytest.mark.parametrize("fields", [AUTO, {}, {"batch_size": 16}, {"data": "cells"}])
def test_what_was_chosen_stays(begun, fields):
    folder = begun(AUTO)
    before = folder.read_configuration()
    asked, chosen = resumed(folder, None, fields)
    assert chosen == before and chosen.epochs == 7
    assert asked == folder.read_asked() and asked.time_budget == "20m"


def test_the_files_of_the_command_may_be_given_again(begun, tmp_path):
    RunConfiguration(data="cells", seed=4).write(tmp_path / "base.yaml")
    for files in (
        (tmp_path / "base.yaml", None, None),
        (None, HPARAMS, None),
        (tmp_path / "base.yaml", HPARAMS, None),
    ):
        fields = {"data": "cells", "batch_size": "auto"}
        chosen = {"batch_size": 2, "learning_rate": 0.001}  # scaled
        folder = begun(fields, files, chosen)
        configuration, hparams, pipeline = files
        again = configured(configuration, hparams, fields, pipeline)
        assert resumed(folder, again, fields)[1] == folder.read_configuration()
        assert resumed(folder, None, {})[1] == folder.read_configuration()


def test_what_matters_must_not_change(begun):
    folder = begun({"data": "cells", "batch_size": "auto"})
    with pytest.raises(ValueError, match=r"seed=3, but it began with 0\. These may"):
        resumed(folder, None, {"seed": 3})
    with pytest.raises(ValueError, match="batch_size=8, but it began with 'auto'"):
        resumed(folder, None, {"batch_size": 8})
    with pytest.raises(ValueError, match="time_budget='5m', but it began with None"):
        resumed(folder, None, {"time_budget": "5m"})

    folder = begun({"data": "cells"}, (None, HPARAMS, None), chosen={})
    other = configured(None, HPARAMS.replace("4", "5"), {"data": "cells"})
    with pytest.raises(ValueError, match=r"learning_rate=.*, but it began with 0"):
        resumed(folder, other, {})


def test_a_new_length_counts_and_is_remembered(begun):
    folder = begun(AUTO, chosen={**CHOSEN, "epochs": None, "steps": 5})
    asked, chosen = resumed(folder, None, {"epochs": 40, "keep": 3})
    assert (chosen.epochs, chosen.steps, chosen.keep) == (40, None, 3)
    assert (asked.epochs, asked.time_budget) == (40, None)
    folder.begin(chosen, requested=asked, keeps_files=True)
    for fields in ({"batch_size": "auto"}, {"batch_size": 16}, {"epochs": 40}):
        asked, chosen = resumed(folder, None, fields)
        assert (chosen.epochs, asked.batch_size) == (40, "auto")
