"""Training on several devices and in several processes."""

from effdet_keras.distribution.launch import Launch, launch_of
from effdet_keras.distribution.processes import current_processes, is_first_process
from effdet_keras.distribution.starting import start

__all__ = [
    "Launch",
    "current_processes",
    "is_first_process",
    "launch_of",
    "start",
]
