"""The label numbers that do not name a class."""

BACKGROUND = -1  # no object: in class targets, and in padding rows of ground truth
IGNORE = -2  # an anchor that adds nothing to the class loss
IGNORED_PIXEL = 255  # in a label map: nobody says what is there, as in VOC's files
