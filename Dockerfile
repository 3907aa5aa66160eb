# A server of one index, without root rights.
#
#     docker build -t happier .
#     docker run --rm -p 8000:8000 -e HAPPIER_TOKEN=... -v "$PWD/photos.index:/index:ro" -v "$PWD/photos:$PWD/photos:ro" happier
#     docker run --rm --gpus all ...                                        with a GPU
#
# The images are mounted at the path that they had when they were indexed.
# The default torch runs on CPU and CUDA. For an image of a third of the size, without CUDA, give the address of torch's CPU wheels
# that PyTorch's installation page names:
#
#     docker build -t happier --build-arg TORCH_WHEELS=ADDRESS .
#
# Linted, not built, by its authors.
ARG PYTHON=3.11
FROM python:${PYTHON}-slim

ARG TORCH_WHEELS=""
ENV PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PYTHONUNBUFFERED=1

WORKDIR /src
COPY constraints.txt ./
# Beside PyPI, not instead: what torch depends on is pinned to versions that PyTorch's own index may lack. Of two equal versions pip takes "+cpu".
RUN pip install -c constraints.txt ${TORCH_WHEELS:+--extra-index-url "$TORCH_WHEELS"} torch torchvision
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install -c constraints.txt '.[web]' && rm -rf /src

RUN useradd --create-home --uid 10001 happier
USER 10001
WORKDIR /home/happier
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/api/health', timeout=4)"]
# A token is needed outside of the machine: set HAPPIER_TOKEN.
ENTRYPOINT ["happier"]
CMD ["serve", "/index", "--host", "0.0.0.0", "--port", "8000"]
