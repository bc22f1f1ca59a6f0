"""What a command may write to, asked before any work."""

import os

import pytest

from effdet_keras.cli.files import check_outputs


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cat.jpg").write_text("a cat")
    return tmp_path


@pytest.mark.parametrize("name", ["cat.jpg", "./cat.jpg", "more/../cat.jpg", "link"])
def test_an_input_is_never_an_output_whatever_it_is_called(folder, name):
    (folder / "more").mkdir()
    os.symlink("cat.jpg", "link")
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="one of the files that are read"):
            check_outputs([name], ["cat.jpg"], overwrite=overwrite)


def test_what_is_there_stays_unless_it_may_go(folder):
    with pytest.raises(
        FileExistsError, match="'cat.jpg' is there already.*--overwrite"
    ):
        check_outputs([None, "new.json", "cat.jpg"])
    check_outputs([None, "new.json", "cat.jpg"], overwrite=True)
    (folder / "gone").symlink_to("nowhere")
    with pytest.raises(FileExistsError, match="'gone'"):
        check_outputs(["gone"])


@pytest.mark.parametrize("second", ["a.png", "./a.png", "A.png"])
def test_two_outputs_are_two_files(second):
    with pytest.raises(ValueError, match="Two outputs"):
        check_outputs(["a.png", second], overwrite=True)
