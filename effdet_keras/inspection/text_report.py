"""What `check` found, as a text for the terminal."""

import numpy as np

from effdet_keras.data.problems import KINDS, Severity, count_kind
from effdet_keras.data.summary import count_of

_SHOWN = 3  # problems named per kind
_CLASSES = 10  # classes named


def write_text(report):
    """Writes a report as a text with a few lines per kind of problem.

    Args:
        report: `CheckReport`.

    Returns:
        str, without a line break at its end.
    """
    lines = [repr(report.dataset), *describe_boxes(report.dataset)]
    lines += _describe_problems(report)
    lines += _describe_coverage(report)
    return "\n".join([*lines, "", verdict(report)])


def verdict(report):
    """Returns the last line: whether the dataset is fit for training, and counts."""
    counts = count_severities(report.problems)
    words = ", ".join(
        f"{count:,} {severity.value}{'' if count == 1 else 's'}"
        for severity, count in counts.items()
    )
    if not report.decoded:
        words += "; the images were not read to their end"
    return f"{'Fit to train on' if report.ok else 'Not fit to train on'}: {words}"


def count_severities(problems):
    """Counts problems: dict from `Severity` to int, errors first."""
    return {s: sum(p.severity is s for p in problems) for s in Severity}


def describe_boxes(dataset):
    """Lines on objects and classes: how many there are, and how they are spread."""
    counts = [len(record.labels) for record in dataset.records]
    if not counts:
        return []
    of_class = count_labels(dataset)
    order = np.argsort(-of_class, kind="stable")
    names = [f"{dataset.class_names[i]} {of_class[i]:,}" for i in order[:_CLASSES]]
    names += ["..."] if len(order) > _CLASSES else []
    return [
        f"objects per image: {min(counts)} to {max(counts)}, median "
        f"{np.median(counts):g}; {count_of(counts.count(0), 'image')} without objects",
        f"boxes per class: {', '.join(names)}",
    ]


def count_labels(dataset):
    """Number of boxes per class, int `[C]`. Labels without a class do not count."""
    labels = [record.labels for record in dataset.records]
    labels = np.concatenate([np.zeros(0, np.int32), *labels])
    known = labels[(labels >= 0) & (labels < dataset.num_classes)]
    return np.bincount(known, minlength=dataset.num_classes)


def _describe_problems(report):
    lines, severity = [], None
    for kind, problems in report.by_kind().items():
        if KINDS[kind].severity is not severity:
            severity = KINDS[kind].severity
            lines += ["", f"{severity.value}s"]
        what = count_kind(kind, len(problems))
        lines.append(f"  {what} ({KINDS[kind].consequence})")
        lines += [f"    {problem}" for problem in problems[:_SHOWN]]
        if len(problems) > _SHOWN:
            lines.append(f"    and {len(problems) - _SHOWN:,} more")
    return lines


def _describe_coverage(report):
    if not report.coverage:
        return []
    lines = ["", describe_anchors(report.config)]
    lines.append(f"  {'size':<8}{'boxes':>9}{'covered':>10}{'mean IoU':>10}")
    for row in report.coverage:
        values = ("-", "-")
        if row.num_boxes:
            values = (f"{100 * row.share:.1f} %", f"{row.mean_iou:.2f}")
        lines.append(
            f"  {row.size:<8}{row.num_boxes:>9,}{values[0]:>10}{values[1]:>10}"
        )
    return lines + [f"  {hint}" for hint in report.hints]


def describe_anchors(config):
    """One line that says which anchors coverage is measured on."""
    height, width = config.image_size
    return (
        f"anchors of {config.name} at {height}x{width}: boxes whose best anchor has "
        "an IoU of 0.5 or more"
    )
