"""`Problems`: everything at once, counted, named, and as severe as it is."""

import pytest

from effdet_keras.data.problems import Problems


def found(kinds, on_error):
    problems = Problems("`from_x` of 'x'", on_error)
    for i, kind in enumerate(kinds):
        problems.add(kind, f"{i}.txt", "why")
    return problems


def test_all_errors_are_raised_in_one_message():
    problems = found(["bad box", "unknown class", "bad box", "empty box"], "raise")
    with pytest.raises(ValueError) as caught:
        problems.finish()
    text = str(caught.value)
    assert text.startswith(
        "`from_x` of 'x' found 2 bad boxes: 0.txt: why; 2.txt: why. "
    )
    assert "1 unknown class: 1.txt" in text and 'on_error="skip"' in text
    assert "empty box" not in text  # no error


def test_missing_images_alone_are_a_missing_file():
    with pytest.raises(FileNotFoundError, match="Is the image folder right"):
        found(["missing image"] * 5, "raise").finish()
    with pytest.raises(ValueError, match="1 missing image"):
        found(["missing image", "bad box"], "raise").finish()


def test_skipped_errors_and_warnings_are_told_and_kept():
    with pytest.warns(UserWarning, match="1 bad box: 0.*1 empty box: 1") as warned:
        problems = found(["bad box", "empty box", "clipped box"], "skip").finish()
    assert [p.kind for p in problems] == ["bad box", "empty box", "clipped box"]
    assert "clipped" not in str(warned[0].message)  # a note
    assert warned[0].filename == __file__ or len(warned) == 1


def test_another_way_to_go_on_is_refused():
    with pytest.raises(ValueError, match="on_error='ignore'"):
        Problems("x", "ignore")
