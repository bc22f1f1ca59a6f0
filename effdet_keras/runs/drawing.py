"""Charts in the folder of a run, where matplotlib is installed."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

from effdet_keras import visualize
from effdet_keras._internal.whole_files import replacing
from effdet_keras.errors import MissingPackageError


def draw_chart(path: pathlib.Path, draw: Callable[[pathlib.Path], object]) -> None:
    """Has a chart drawn into a file, or says why there is none.

    Args:
        path: path of the file, which is replaced whole.
        draw: function of a path, which draws with matplotlib.

    Example:
        >>> import tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "curves.png")
        >>> draw_chart(path, lambda partial: partial.write_bytes(b"chart"))
        >>> path.read_bytes()
        b'chart'
    """
    try:
        visualize.require_matplotlib()
    except MissingPackageError as error:
        print(f"There is no {path.name}: {error}")
        return
    with replacing(path) as partial:
        draw(partial)
