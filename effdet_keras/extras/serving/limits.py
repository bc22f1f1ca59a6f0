"""What a server takes of its clients, and for how long it waits."""

import dataclasses

from effdet_keras.errors import InvalidValueError


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a server takes of its clients, and for how long it waits.

    The memory that requests can take is at most `max_requests * max_bytes` for what is
    read, `max_queue` inputs of the network, and as many decoded images as there are
    threads that decode.

    Attributes:
        max_bytes: int, of one image file.
        max_pixels: int, of one image.
        max_side: int, pixels of its width and of its height.
        max_batch: int, images that the network gets at once.
        max_wait: float, seconds that the first image of a batch waits for others.
        max_queue: int, images that wait for the network.
        max_requests: int, requests with an image that are answered at the same time,
            those included of which the body still arrives.
        body_timeout: float, seconds in which the whole body must arrive.
        timeout: float, seconds from then to the answer.
    """

    max_bytes: int = 10_000_000
    max_pixels: int = 25_000_000
    max_side: int = 16_384
    max_batch: int = 8
    max_wait: float = 0.005
    max_queue: int = 64
    max_requests: int = 256
    body_timeout: float = 15.0
    timeout: float = 30.0

    @property
    def of_image(self) -> dict[str, int]:
        """Those of a decoded image, as `images.decode_image` takes them."""
        return {"max_pixels": self.max_pixels, "max_side": self.max_side}

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if value < 0 or (value == 0 and name != "max_wait"):
                raise InvalidValueError(
                    f"`{name}` must be above 0. Received: {name}={value}"
                )
