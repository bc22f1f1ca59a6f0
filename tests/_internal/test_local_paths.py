import os
import pathlib

import pytest

from effdet_keras._internal.whole_files import is_remote, local_path


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *(
            (path, path)
            for path in ("cats", "a/b.keras", "a:b", "gs:cats", "/x/gs://y")
        ),
        ("~/cats", f"{pathlib.Path.home()}/cats"),
        ("C://cats", "C://cats"),  # a drive of Windows
        ("file:///tmp/two%20cats", "/tmp/two cats"),
        ("file://localhost/tmp/two%20cats", "/tmp/two cats"),
        ("file://[::1/tmp/two%20cats", "/tmp/two cats"),
    ],
)
def test_a_path_of_this_machine_is_understood(given, expected):
    assert local_path(given, "`path`") == pathlib.Path(expected)
    assert not is_remote(given)


@pytest.mark.parametrize(
    "url", ["gs://bucket/a", "GS://bucket/a", "abfss://name/a", "https://example.org/a"]
)
def test_another_scheme_is_refused_with_the_cure(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in (url, pathlib.Path(url)):  # which has one slash of the two
        with pytest.raises(ValueError, match=f"The folder must be on.*{url}.*gsutil"):
            local_path(given, "The folder")
        assert is_remote(given)
    assert os.listdir(tmp_path) == []


def test_secrets_of_an_address_are_not_shown():
    with pytest.raises(ValueError) as caught:
        local_path("https://me:word@example.org/a?key=1", "`path`")
    assert "'https://example.org/a'" in str(caught.value)
