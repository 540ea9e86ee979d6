# syntax=docker/dockerfile:1
# hloopt in a container.
#
#   docker build --target cpu -t hloopt .           the devices cpu, native and emulator
#   docker build --target gpu -t hloopt-gpu .       and gpu, with CUDA 13 (docker run --gpus all)
#   docker run --rm -v "$PWD:/work" hloopt optimize dump.txt

FROM python:3.12-slim-bookworm AS build
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim-bookworm AS cpu
# g++ compiles the kernels of the devices native and emulator; its version is Debian's.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl
# No root: what a module makes the compiler do has a user's rights.
RUN useradd --create-home user && mkdir /work && chown user /work
USER user
WORKDIR /work
ENTRYPOINT ["hloopt"]
CMD ["--help"]

FROM cpu AS gpu
USER root
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# The libraries of CUDA come with the extra; the driver is the host's.
RUN wheel="$(ls /wheels/*.whl)" && pip install --no-cache-dir "${wheel}[gpu]"
USER user
