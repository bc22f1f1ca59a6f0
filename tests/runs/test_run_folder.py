"""The folder of a run: two runs never share one."""

import json

import pytest

from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with folder.taken():
        folder.begin(RunConfiguration(data="cells"))
    (folder.archive).mkdir()
    (folder.archive / "best.keras").write_text("weights")
    return folder


def test_a_folder_with_a_run_is_refused_unless_it_may_be_overwritten(folder):
    with pytest.raises(FileExistsError, match=r"has a run already.*--overwrite"):
        folder.check_free(overwrite=False)
    folder.check_free(overwrite=True)


def test_a_folder_with_something_else_is_never_taken(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match=r"thesis\.tex"):
            RunFolder(tmp_path).check_free(overwrite=overwrite)
    RunFolder(tmp_path / "new").check_free(overwrite=False)


def test_a_new_run_removes_the_files_of_the_one_before_and_no_others(folder):
    (folder.path / "notes.txt").write_text("mine")
    folder.log.write_text("{}\n")
    folder.begin(RunConfiguration(data="shapes"))
    assert folder.read_configuration().data == "shapes"
    there = sorted(path.name for path in folder.path.iterdir())
    assert there == ["asked.yaml", "configuration.yaml", "notes.txt"]


def test_a_run_that_goes_on_keeps_its_files(folder):
    folder.begin(RunConfiguration(data="cells", epochs=9), keeps_files=True)
    assert (folder.archive / "best.keras").exists()
    assert folder.read_configuration().epochs == 9


def test_without_a_run_there_is_nothing_to_go_on_with(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run to go on with"):
        RunFolder(tmp_path).check_run()


def test_a_run_has_its_folder_for_itself(folder):
    owner = {"process": 1, "host": "another machine"}
    (folder.path / ".in_use.json").write_text(json.dumps(owner))
    with pytest.raises(RuntimeError, match="another machine"), folder.taken():
        pass


def test_other_data_is_noticed(folder):
    data = {"splits": {"train": {"images": 4, "boxes": 9, "sha256": "a"}}}
    folder.check_same_data(data)  # nothing is known yet
    folder.write_json("data", data)
    folder.check_same_data(data)
    data["splits"]["train"].update(images=5, sha256="b")
    with pytest.raises(RuntimeError, match=r"4 images with 9 boxes; now 5 with 9"):
        folder.check_same_data(data)


def test_a_run_that_goes_on_is_no_longer_finished(tmp_path):
    folder, run = RunFolder(tmp_path / "run"), RunConfiguration(data="cells")
    folder.begin(run)
    assert not folder.is_finished
    folder.finish(epoch=3)
    assert folder.is_finished
    folder.begin(run, keeps_files=True)
    assert not folder.is_finished
