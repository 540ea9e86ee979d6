# syntax=docker/dockerfile:1
# hloopt in a container.
#
#   docker build --target cpu -t hloopt .           the devices cpu, native and emulator
#   docker build --target gpu -t hloopt-gpu .       and gpu, with CUDA 13 (docker run --gpus all)
#   docker run --rm -v "$PWD:/work" hloopt optimize dump.txt

FROM python:3.12-slim-bookworm AS build
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
    && for wheel in /wheels/*.whl; do echo "hloopt[gpu] @ file://$wheel"; done > /wheels/gpu.txt

FROM python:3.12-slim-bookworm AS cpu
# g++ compiles the kernels of the devices native and emulator; its version is Debian's.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl
# No root: what a module makes the compiler do has a user's rights.
RUN useradd --uid 1000 --create-home user && mkdir /work && chown user /work
USER 1000
WORKDIR /work
ENTRYPOINT ["hloopt"]
CMD ["--help"]

FROM cpu AS gpu
USER 0
# The libraries of CUDA come with the extra; the driver is the host's.
RUN pip install --no-cache-dir --requirement /wheels/gpu.txt
USER 1000
