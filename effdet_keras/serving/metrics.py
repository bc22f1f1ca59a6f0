"""What a server counts and measures, for Prometheus."""

from effdet_keras._internal.optional_imports import prometheus_client

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """Counters and histograms of one server, in a registry of their own.

    Args:
        queue_length: function that returns how many images wait for the network.
    """

    def __init__(self, queue_length):
        client = prometheus_client
        self._registry = registry = client.CollectorRegistry()
        client.ProcessCollector(registry=registry)  # memory, open files, CPU time
        self.requests = client.Counter(
            "effdet_requests",
            "Requests of /detect that were answered, by HTTP status",
            ["status"],
            registry=registry,
        )
        self.seconds = client.Histogram(
            "effdet_request_seconds",
            "From the first byte of a request of /detect to its answer",
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_flight = client.Gauge(
            "effdet_requests_in_flight",
            "Requests of /detect that are not answered yet",
            registry=registry,
        )
        self.batch_images = client.Histogram(
            "effdet_batch_images",
            "Images in a batch",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=registry,
        )
        self.batch_seconds = client.Histogram(
            "effdet_batch_seconds",
            "Network and postprocess of a batch",
            buckets=_SECONDS,
            registry=registry,
        )
        self.reloads = client.Counter(
            "effdet_reloads",
            "Times that a new model was asked for, by how it went",
            ["result"],
            registry=registry,
        )
        waiting = client.Gauge(
            "effdet_queue_images", "Images that wait for the network", registry=registry
        )
        waiting.set_function(queue_length)

    def text(self) -> bytes:
        """All of them, in Prometheus' text format."""
        return prometheus_client.generate_latest(self._registry)
