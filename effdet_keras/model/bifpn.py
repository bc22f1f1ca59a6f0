"""Moved to `effdet_keras.network.bifpn`; this path works for one release."""

from effdet_keras._internal.moved_modules import names_of_moved_module

__getattr__ = names_of_moved_module(__name__, "effdet_keras.network.bifpn")
