# A server for one detector:
#   docker build -t effdet-keras .
#   docker run --rm -p 8000:8000 -v "$PWD:/models:ro" effdet-keras /models/pets.onnx
FROM python:3.12-slim

WORKDIR /package
COPY setup.cfg pyproject.toml README.md LICENSE NOTICE ./
COPY effdet_keras effdet_keras
# The versions of what it needs are in setup.cfg. The server needs no rights: nothing
# that is sent is written anywhere.
# hadolint ignore=DL3013
RUN pip install --no-cache-dir ".[serve,onnx,litert]" \
    && useradd --create-home --uid 10001 server
USER 10001
WORKDIR /home/server

EXPOSE 8000
HEALTHCHECK --start-period=120s --interval=30s --timeout=10s CMD \
    ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health', timeout=5)"]
# SIGTERM answers what was accepted: `docker stop --time 45`.
ENTRYPOINT ["effdet-keras", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["--help"]
