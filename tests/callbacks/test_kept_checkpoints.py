"""Which of many checkpoints stay."""

import os

import pytest

from effdet_keras.callbacks.checkpoint_archive import keep_copy, kept_files, removable

HOUR = 3600.0


def written(folder, count, *, minutes=30, **options):
    """The steps of the files that are left of so many, one every half an hour."""
    for number in range(count):
        path = folder / "last.keras.new"
        path.write_text(str(number))
        os.utime(path, (1e9 + 60 * minutes * number,) * 2)
        path.replace(folder / "last.keras")
        keep_copy(folder / "last.keras", 10 * number, **options)
    assert (folder / "last.keras").read_text() == str(count - 1)
    for file in kept_files(folder):
        assert int(file.stem[5:]) == 10 * int(file.read_text())
    return [int(file.stem[5:]) for file in kept_files(folder)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, []),
        ({"keep": 3}, [70, 80, 90]),
        ({"keep": 1, "every_hours": 2}, [0, 40, 80, 90]),
        ({"keep": 2, "every_hours": 1.5}, [0, 30, 60, 80, 90]),
        ({"keep": 30}, list(range(0, 100, 10))),
    ],
    ids=str,
)
def test_the_last_and_one_every_few_hours_stay(tmp_path, options, expected):
    assert written(tmp_path, 10, **options) == expected


@pytest.mark.parametrize("jump", [-24 * HOUR, 24 * HOUR])
def test_a_clock_that_is_set_loses_none_of_the_hours_after_it(jump):
    times = [HOUR * n / 2 + (jump if n >= 4 else 0.0) for n in range(12)]
    stay = set(range(12)) - set(removable(times, keep=1, every_hours=1))
    assert stay == {0, 2, 4, 6, 8, 10, 11}


def test_a_disk_without_links_gets_copies(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError

    monkeypatch.setattr(os, "link", refuse)
    assert written(tmp_path, 3, keep=2) == [10, 20]


def test_what_is_kept_of_old_ones_does_not_depend_on_when_it_is_asked():
    times = [HOUR * n / 4 for n in range(40)]
    at_once = set(times) - {times[i] for i in removable(times, 3, 2)}
    left = []
    for time in times:
        left.append(time)
        gone = removable(left, 3, 2)
        left = [t for i, t in enumerate(left) if i not in gone]
    assert set(left) == at_once
