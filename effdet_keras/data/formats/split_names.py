"""Names of splits, and what names of files and folders say of them."""

ONE_SPLIT = "train"  # the name of a dataset that is not divided

# Names of annotation files that name what is in them, not a split.
_NO_SPLITS = ("annotations", "labels", "data", "dataset", "coco", "default", "result")


def split_of_name(name: str) -> str:
    """Returns the split that the name of a file stands for.

    Args:
        name: the name without its ending.

    Returns:
        str, the name itself, or "train" where it only says what the file holds.

    Example:
        >>> split_of_name("valid"), split_of_name("annotations")
        ('valid', 'train')
    """
    return ONE_SPLIT if name.lower() in _NO_SPLITS else name
