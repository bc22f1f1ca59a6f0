"""Calls a function as soon as Keras has been imported, by whomever.

`keras.saving.load_model` opens a model of this package only if the package's classes
are registered with Keras. So whoever imports Keras beside `effdet_keras` must have them
all, and who does not must not wait for Keras.
"""

import contextlib
import importlib.abc
import sys
import threading

_PACKAGE = "effdet_keras."


def keras_is_imported():
    """Whether Keras is there already."""
    return sys.modules.get("keras") is not None


def when_keras_comes(call):
    """Calls a function once, after the import that brought Keras.

    That is an import of Keras itself, or of a module of ours that needs it: then the
    outermost of them, because one that is only half imported cannot be used.

    Args:
        call: function without arguments.
    """
    sys.meta_path.insert(0, _Watch(call))


class _Watch(importlib.abc.MetaPathFinder):
    """Finds nothing itself; it is told which modules are imported."""

    def __init__(self, call):
        self._call = call
        self._here = threading.local()  # how many imports are within each other

    def find_spec(self, name, path=None, target=None):
        if name != "keras" and not name.startswith(_PACKAGE):
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, specs), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._count(spec.loader)
        return spec

    def _count(self, loader):
        """Has the loader say when it begins and ends."""
        execute = loader.exec_module

        def counted(module):
            del loader.exec_module  # what was put over the method of its class
            self._here.depth = getattr(self._here, "depth", 0) + 1
            try:
                execute(module)
            finally:
                self._here.depth -= 1
            if self._here.depth == 0 and keras_is_imported() and self in sys.meta_path:
                with contextlib.suppress(ValueError):  # another thread was faster
                    sys.meta_path.remove(self)
                self._call()

        loader.exec_module = counted
