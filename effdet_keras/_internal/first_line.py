"""What of another library's error fits into a sentence of ours."""


def first_line(error):
    """The first line of an error's text, or the name of its class if it has none.

    Example:
        >>> first_line(ValueError("no such file\\nin many lines"))
        'no such file'
        >>> first_line(KeyError())
        'KeyError'
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
