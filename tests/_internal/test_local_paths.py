import os
import pathlib

import pytest

from effdet_keras._internal.whole_files import is_remote, local_path
from effdet_keras.errors import EffDetError


@pytest.mark.parametrize("path", ["cats", "a/b.keras", "a:b", "gs:cats", "/x/gs://y"])
def test_a_local_path_stays_what_it_is(path):
    assert local_path(path, "`path`") == pathlib.Path(path)
    assert local_path(pathlib.Path(path), "`path`") == pathlib.Path(path)


def test_a_tilde_is_the_home_folder_at_the_start_alone():
    assert local_path("~/cats", "`path`") == pathlib.Path.home() / "cats"
    assert local_path("a/~/cats", "`path`") == pathlib.Path("a/~/cats")


def test_a_drive_of_windows_is_no_scheme():
    assert local_path("C://cats", "`path`") == pathlib.Path("C://cats")


@pytest.mark.parametrize(
    "url", ["file:///tmp/two%20cats", "file://localhost/tmp/two%20cats"]
)
def test_a_file_url_is_understood(url):
    assert local_path(url, "`path`") == pathlib.Path("/tmp/two cats")


def test_a_file_url_as_a_path_is_understood():
    assert local_path(pathlib.Path("file:///tmp/a"), "`path`") == pathlib.Path("/tmp/a")


def test_a_file_url_of_another_machine_is_refused():
    with pytest.raises(ValueError, match="three slashes.*file://server/a"):
        local_path("file://server/a", "`path`")


@pytest.mark.parametrize(
    "url, cure",
    [
        ("gs://bucket/a", "gsutil cp -r"),
        ("GS://bucket/a", "gsutil cp -r"),
        ("s3://bucket/a", "aws s3 cp"),
        ("hdfs://name/a", "hdfs dfs -cp"),
        ("abfss://name/a", "with the tool of that storage"),
        ("https://example.org/a", "with the tool of that storage"),
    ],
)
def test_another_scheme_is_refused_with_the_cure(url, cure, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"The folder must be on.*{url}.*{cure}"):
        local_path(url, "The folder")
    assert os.listdir(tmp_path) == []
    assert is_remote(url)


def test_an_address_that_pathlib_has_shortened_is_refused():
    path = pathlib.Path("gs://bucket/a")
    with pytest.raises(ValueError, match="Received: 'gs://bucket/a'"):
        local_path(path, "`path`")
    assert is_remote(path)


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
