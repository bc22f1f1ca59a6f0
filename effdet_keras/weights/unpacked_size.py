"""How much the weights in a compressed file may unpack to."""

_FREE_BYTES, _MOST_COMPRESSION = 2**26, 50  # weights hardly compress


def largest_unpacked(compressed):
    """The bytes that so many compressed ones may become; more would be a trap.

    Example:
        >>> largest_unpacked(10_000_000)
        567108864
    """
    return _FREE_BYTES + _MOST_COMPRESSION * compressed
