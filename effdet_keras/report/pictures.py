"""Images of a report: the worst ones, and annotations that may be wrong."""

import html

import numpy as np

from effdet_keras.data.record import load_image
from effdet_keras.evaluate.matches import NONE, match_detections
from effdet_keras.report.pages import fitted, image_tag
from effdet_keras.visualize.boxes import ASIDE, BAD, GOOD, draw_marked

_WORST = 12  # images shown
_SUSPECTS = 4  # shown of each kind
_SUSPECT_KINDS = {
    "missing": "a sure detection where nothing is annotated",
    "unfound": "an annotation where the detector sees nothing",
    "wrong class": "a sure detection of another class than annotated",
    "loose box": "a sure detection whose box differs from the annotated one",
}
_AROUND = 2.5  # sides of a crop, in sides of the box that it is about
_LEAST_CROP = 64  # pixels: less shows nothing of what is around


class Pictures:
    """Draws images of a dataset with what is true and what was found.

    An image that cannot be read is left out.
    """

    def __init__(self, evaluation, results, dataset):
        self._evaluation = evaluation
        self._results = {result.image_id: result for result in results}
        self._records = {record.image_id: record for record in dataset.records}

    def worst(self):
        """Returns the worst images as HTML; an empty text if there is nothing wrong."""
        wrong = [x for x in self._evaluation.worst_images if x.badness > 0][:_WORST]
        figures = filter(None, map(self._worst_figure, wrong))
        return _gallery(
            figures,
            "Detections from score "
            f"{self._evaluation.shown_score:.2f} on. Green is right; red is missed (in "
            "the ground truth) or wrong (in the detections); crowd regions are blue.",
        )

    def suspects(self):
        """Returns the most suspicious annotations as HTML, kind by kind."""
        parts = []
        for kind, meaning in _SUSPECT_KINDS.items():
            found = [x for x in self._evaluation.suspects if x.kind == kind]
            figures = filter(None, map(self._suspect_figure, found[:_SUSPECTS]))
            gallery = _gallery(figures, f"{meaning[0].upper()}{meaning[1:]}.")
            if gallery:
                parts.append(f"<h3>{kind.capitalize()}: {len(found):,}</h3>{gallery}")
        return "".join(parts)

    def _worst_figure(self, errors):
        result, pixels = self._results[errors.image_id], self._pixels(errors.image_id)
        if pixels is None:
            return ""
        image, scale = fitted(pixels)
        shown = result.above(self._evaluation.shown_score)
        matches = match_detections(shown)
        truth = draw_marked(image, *self._truth(shown, matches, scale))
        found = draw_marked(image, *self._found(shown, matches, scale))
        name = errors.name or f"image {errors.image_id}"
        return (
            '<figure><div class="pair">'
            f"{_titled(truth, 'Ground truth', name)}"
            f"{_titled(found, 'Detections', name)}</div>"
            f"<figcaption><code>{html.escape(name)}</code> {errors.num_found} found, "
            f"{errors.num_missed} missed, {errors.num_false} wrong</figcaption>"
            "</figure>\n"
        )

    def _truth(self, result, matches, scale):
        """Boxes, words and colors of the objects: missed ones first, with names."""
        rows = []
        for index, box in enumerate(result.truth_boxes * scale):
            name = self._name(result.truth_labels[index])
            if result.truth_is_crowd[index]:
                rows.append((2, box, "", ASIDE))
            elif matches.detection[index] == NONE:
                rows.append((0, box, name, BAD))
            else:
                rows.append((1, box, "", GOOD))
        return _columns(rows)

    def _found(self, result, matches, scale):
        """The same of the detections: wrong ones first, with names and scores."""
        rows = []
        for index, box in enumerate(result.boxes * scale):
            words = f"{self._name(result.labels[index])} {result.scores[index]:.2f}"
            if matches.is_false[index]:
                rows.append((0, box, words, BAD))
            else:
                is_right = matches.is_true[index]
                rows.append((1, box, "", GOOD if is_right else ASIDE))
        return _columns(rows)

    def _suspect_figure(self, suspect):
        pixels = self._pixels(suspect.image_id)
        if pixels is None:
            return ""
        boxes, words, colors = [], [], []
        if suspect.label is not None:
            boxes.append(suspect.box)
            words.append(self._name(suspect.label))
            colors.append(ASIDE)
        if suspect.found_box is not None:
            boxes.append(suspect.found_box)
            words.append(f"{self._name(suspect.found_label)} {suspect.score:.2f}")
            colors.append(BAD)
        top, left, bottom, right = crop_around(np.array(boxes), pixels.shape[:2])
        image, scale = fitted(pixels[top:bottom, left:right])
        boxes = (np.array(boxes) - [top, left, top, left]) * scale
        drawn = draw_marked(image, boxes, words, colors)
        name = suspect.name or f"image {suspect.image_id}"
        corners = "y {:.0f} to {:.0f}, x {:.0f} to {:.0f}".format(
            *np.array(suspect.box)[[0, 2, 1, 3]]
        )
        return (
            f"<figure>{image_tag(drawn, name)}<figcaption>"
            f"<code>{html.escape(name)}</code> {corners}; suspicion "
            f"{suspect.suspicion:.2f}</figcaption></figure>\n"
        )

    def _pixels(self, image_id):
        """The image, or None where it is not there or cannot be read."""
        if image_id not in self._records:
            return None
        try:
            return load_image(self._records[image_id])
        except (ValueError, OSError):
            return None

    def _name(self, label):
        return self._evaluation.class_names[label]


def crop_around(boxes, image_size):
    """The part of an image to show for some boxes: with what is around them.

    Args:
        boxes: floats `[n, 4]`, `yxyx` in pixels; one or more.

    Example:
        >>> crop_around(np.array([[40, 40, 60, 80]]), (200, 300))
        (0, 10, 100, 110)
    """
    low, high = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)
    middle = (low + high) / 2
    side = max(_AROUND * (high - low).max(), _LEAST_CROP)
    limit = np.array(image_size)
    start = np.clip(np.floor(middle - side / 2), 0, np.maximum(limit - 1, 0))
    end = np.clip(np.ceil(middle + side / 2), start + 1, limit)
    return (*start.astype(int).tolist(), *end.astype(int).tolist())


def _titled(image, title, name):
    return f"<div><small>{title}</small>{image_tag(image, f'{title} of {name}')}</div>"


def _columns(rows):
    """Boxes, words and colors, those of the first rank first."""
    rows = sorted(rows, key=lambda row: row[0])
    boxes = np.array([box for _, box, _, _ in rows]).reshape(-1, 4)
    return boxes, [words for *_, words, _ in rows], [color for *_, color in rows]


def _gallery(figures, words):
    figures = "".join(figures)
    if not figures:
        return ""
    return f'<p>{html.escape(words)}</p><div class="images">{figures}</div>'
