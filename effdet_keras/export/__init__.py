"""Export: a model as a file of another runtime, checked in that runtime."""
