"""The Dockerfile: what it copies is there."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[3]


def test_what_it_copies_is_there_and_not_ignored():
    copied = re.findall(r"^COPY (.*) \S+$", (ROOT / "Dockerfile").read_text(), re.M)
    names = [name for line in copied for name in line.split()]
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    assert len(names) > 3
    for name in names:
        assert (ROOT / name).exists() and f"!{name}" in kept
