"""The version, where the build can read it without importing Keras."""

__version__ = "0.1.0"
