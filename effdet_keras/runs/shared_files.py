"""The files of the first process' run, in the folders of the other processes."""

from __future__ import annotations

from collections.abc import Sequence

from effdet_keras.distribution.processes import current_processes
from effdet_keras.runs.run_folder import RunFolder
from effdet_keras.weights.checkpoint_files import BEST_FILE, LAST_FILE, PREVIOUS_FILE

# The last but one is what a training goes on from where the last is damaged.
CHECKPOINTS = tuple(f"archive/{n}" for n in (BEST_FILE, LAST_FILE, PREVIOUS_FILE))
OF_A_RUN = ("configuration.yaml", "data.json", "log.jsonl", *CHECKPOINTS)


def copy_from_first(folder: RunFolder, names: Sequence[str]) -> None:
    """Gives each process the files that the first has, by way of the network.

    So the folder of a run need not be on a disk that all hosts see. All processes call
    it; in a training of one process it does nothing.

    Args:
        folder: `RunFolder`, in the other processes a temporary one.
        names: paths below it; those that the first does not have are removed.
    """
    processes = current_processes()
    if processes.count == 1:
        return
    own = {}
    if processes.index == 0:
        paths = {name: folder.path / name for name in names}
        own = {n: path.read_bytes() for n, path in paths.items() if path.is_file()}
    files = processes.gather(own)[0]
    if processes.index == 0:
        return
    for name in names:
        path = folder.path / name
        path.unlink(missing_ok=True)
        if name in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(files[name])
