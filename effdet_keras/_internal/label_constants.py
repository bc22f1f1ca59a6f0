"""The two label numbers that do not name a class."""

BACKGROUND = -1  # no object: in class targets, and in padding rows of ground truth
IGNORE = -2  # an anchor that adds nothing to the class loss
