"""The Dockerfile: without a finding, and built where docker runs."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]


def hadolint():
    beside = pathlib.Path(sys.executable).with_name("hadolint")
    return str(beside) if beside.exists() else shutil.which("hadolint")


def has_docker():
    if shutil.which("docker") is None:
        return False
    done = subprocess.run(["docker", "info"], capture_output=True, timeout=60)
    return done.returncode == 0


@pytest.mark.extra_packages
@pytest.mark.skipif(hadolint() is None, reason="there is no hadolint here")
def test_it_is_without_a_finding():
    done = subprocess.run(
        [hadolint(), "--no-color", str(ROOT / "Dockerfile")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_it_copies_is_there_and_not_ignored():
    copied = re.findall(r"^COPY (.*) \S+$", (ROOT / "Dockerfile").read_text(), re.M)
    names = [name for line in copied for name in line.split()]
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    assert len(names) > 3
    for name in names:
        assert (ROOT / name).exists() and f"!{name}" in kept


@pytest.mark.slow
def test_it_can_be_built_and_says_how_it_is_used():
    if not has_docker():
        pytest.skip("docker does not run here")
    subprocess.run(["docker", "build", "-t", "effdet-keras-test", ROOT], check=True)
    done = subprocess.run(
        ["docker", "run", "--rm", "effdet-keras-test", "--help"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "answer over HTTP" in done.stdout or "--max-batch" in done.stdout
