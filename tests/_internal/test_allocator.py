"""The allocator: what is set, and when it is left alone."""

import ctypes
import os
import platform
import sys

import pytest

from effdet_keras._internal import allocator


class Libc:
    """Stands for glibc and notes what it is told."""

    def __init__(self):
        self.calls = {}

    def mallopt(self, parameter, value):
        self.calls[parameter] = value
        return 1


@pytest.fixture
def libc(monkeypatch):
    libc = Libc()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc)
    for name in list(os.environ):
        if name.startswith("MALLOC_"):
            monkeypatch.delenv(name)
    allocator.tune_allocator.cache_clear()
    yield libc
    allocator.tune_allocator.cache_clear()


def test_large_blocks_are_kept(libc):
    assert allocator.tune_allocator()
    # M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD of malloc.h
    assert libc.calls == {-4: 0, -1: -1, -2: 2**28}


def test_it_is_done_once(libc):
    allocator.tune_allocator()
    libc.calls.clear()
    assert allocator.tune_allocator()
    assert not libc.calls


def test_the_user_has_the_last_word(libc, monkeypatch):
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    assert not allocator.tune_allocator()
    assert not libc.calls


@pytest.mark.parametrize("name", ["darwin", "win32"])
def test_other_systems_are_left_alone(libc, monkeypatch, name):
    monkeypatch.setattr(sys, "platform", name)
    assert not allocator.tune_allocator()
    assert not libc.calls


def test_another_libc_is_left_alone(libc, monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not allocator.tune_allocator()
    assert not libc.calls


@pytest.mark.skipif(
    sys.platform != "linux" or platform.libc_ver()[0] != "glibc",
    reason="glibc alone can be told",
)
def test_glibc_takes_the_settings():
    from subprocess import run

    code = (
        "import sys\n"
        "sys.argv[0] = 'effdet-keras'\n"  # which imports no more than it uses
        "from effdet_keras._internal.allocator import tune_allocator\n"
        "raise SystemExit(0 if tune_allocator() else 3)"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    assert run([sys.executable, "-c", code], env=clean).returncode == 0
