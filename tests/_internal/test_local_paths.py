import os
import pathlib

import pytest

from effdet_keras._internal.whole_files import is_remote, local_path
from effdet_keras.errors import EffDetError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *(
            (path, path)
            for path in ("cats", "a/b.keras", "a:b", "gs:cats", "/x/gs://y")
        ),
        ("~/cats", f"{pathlib.Path.home()}/cats"),
        ("a/~/cats", "a/~/cats"),
        ("C://cats", "C://cats"),  # a drive of Windows
        ("file:///tmp/two%20cats", "/tmp/two cats"),
        (pathlib.Path("file:///tmp/a"), "/tmp/a"),
        ("file://localhost/tmp/two%20cats", "/tmp/two cats"),
    ],
)
def test_a_path_of_this_machine_is_understood(given, expected):
    assert local_path(given, "`path`") == pathlib.Path(expected)
    assert not is_remote(given)


def test_a_file_url_of_another_machine_is_refused():
    with pytest.raises(ValueError, match="three slashes.*file://server/a"):
        local_path("file://server/a", "`path`")


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


@pytest.mark.parametrize("path", [None, 3, ["a"]])
def test_what_is_no_path_is_named(path):
    with pytest.raises(TypeError, match="`path` must be a string or a path.*Received"):
        local_path(path, "`path`")


def test_secrets_of_an_address_are_not_shown():
    with pytest.raises(ValueError) as caught:
        local_path("https://me:word@example.org/a?key=1", "`path`")
    assert "'https://example.org/a'" in str(caught.value)


@pytest.mark.parametrize("address", ["http://[::1", "https://host:port/a", "s3://[x/a"])
def test_a_malformed_address_is_named_with_the_cure(address):
    with pytest.raises(ValueError, match="is not an address.*must be like") as caught:
        is_remote(address)
    assert isinstance(caught.value, EffDetError) and address in str(caught.value)
