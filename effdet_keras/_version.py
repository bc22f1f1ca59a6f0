"""The version, in a file that the build can read without importing Keras."""

__version__ = "0.1.0"
