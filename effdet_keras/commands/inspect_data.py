"""Reports on a dataset: on the terminal, and as HTML pages."""

import os

from effdet_keras._internal.local_paths import local_path
from effdet_keras.errors import InvalidValueError
from effdet_keras.inspection import check, check_splits
from effdet_keras.weights.fetch.locate import looks_like_weights


def inspect_data(
    data: str | os.PathLike,
    *,
    split: str | None = None,
    format: str | None = None,
    html: str | os.PathLike | None = None,
    **options,
) -> bool:
    """Checks a dataset, prints the reports, and writes them as pages.

    Args:
        data: path of a file or folder.
        split: name of the only split to check; None checks all.
        format: the format of the dataset; None finds it out.
        html: path of a page to write, or None. If there are several splits, the name
            of the split is added to the name of each page.
        **options: `model`, `image_size` and `decode` of `effdet_keras.data.check`.

    Returns:
        bool, whether no split has errors.

    Raises:
        OSError: If `data` is not there.
        ValueError: If `data` is not a dataset; see `effdet_keras.data.check`.
    """
    html = None if html is None else local_path(html, "`html`")
    try:
        if split is None:
            reports = check_splits(data, format=format, **options)
        else:
            report = check(data, split=split, format=format, **options)
            reports = {split: report}
    except (InvalidValueError, OSError) as error:
        if looks_like_weights(data):
            raise InvalidValueError(
                f"'{data}' holds weights, not a dataset. Use "
                f"`effdet-keras inspect-weights {data}`."
            ) from error
        raise
    for name, report in reports.items():
        print(f"\n== {name} ==\n{report}")
        if html is not None:
            page = html if len(reports) == 1 else html.with_stem(f"{html.stem}-{name}")
            report.save(page)
            print(f"Report with images: {page}")
    return all(report.ok for report in reports.values())
