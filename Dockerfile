# The sidecar's image: docs/image.md says what is in it, how it is checked and how it is run. Two stages: the first has
# pip and the source, the second gets a virtual environment with the program and what it needs at run time. Nothing here
# needs a compiler: every pin has a wheel, and one that has none ends the build.

ARG BASE_IMAGE=python:3.13-slim

FROM ${BASE_IMAGE} AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ONLY_BINARY=:all: \
    PIP_REQUIRE_VIRTUALENV=1

# The program's environment gets no pip of its own; the tools' environment stays behind in this stage.
RUN python3 -m venv /opt/tools && python3 -m venv --without-pip /opt/pilotfish

# A proxy's certificates and an index of one's own are secrets of the build, and no layer holds them; the build needs
# neither where pip gets at PyPI by itself.
WORKDIR /src
# Which pins: run.txt, or with an extra: otel.txt (traces), oauth.txt (signed assertions), msk-iam.txt (Amazon MSK).
ARG PINS=run.txt
COPY requirements/build.txt requirements/run.txt requirements/otel.txt requirements/oauth.txt requirements/msk-iam.txt \
    requirements/
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=pip_ca,target=/run/pip_ca.pem \
    /opt/tools/bin/pip install --require-hashes --requirement requirements/build.txt \
    && /opt/tools/bin/pip --python /opt/pilotfish/bin/python3 install --require-hashes --no-compile \
        --requirement "requirements/${PINS}"

# Of the project only what runs beside a service: the data pipeline, which runs on Spark, has no place here, and its
# command would find nothing to call. --no-index: what is built here must need nothing that has no hash.
COPY pyproject.toml README.md ./
COPY client_core client_core
COPY service service
RUN /opt/tools/bin/pip wheel --no-index --no-deps --no-build-isolation --only-binary=:none: --wheel-dir dist . \
    && /opt/tools/bin/pip --python /opt/pilotfish/bin/python3 install --no-index --no-deps --no-compile dist/*.whl \
    && rm /opt/pilotfish/bin/pilotfish-pipeline \
    # Bytecode that no file's date can make stale: some builders and registries set all dates anew.
    && /opt/pilotfish/bin/python3 -m compileall -q --invalidation-mode unchecked-hash /opt/pilotfish/lib


FROM ${BASE_IMAGE}

ARG VERSION=0.1.0
ARG REVISION=
ARG SOURCE=
ARG LICENSES=
LABEL org.opencontainers.image.title="pilotfish" \
      org.opencontainers.image.description="A Kafka metadata-cache sidecar: leaders and produce over HTTP on localhost, for services that know no Kafka" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.licenses="${LICENSES}"

COPY --from=build /opt/pilotfish /opt/pilotfish

# python:slim has no bytecode of Python's own library, and on a read-only root it can't be kept: every start would
# compile it again. What the sidecar imports is compiled here, by importing it once while the root can be written; the
# last two are what Python itself imports later, for the first thread of a pool and the first name to look up.
RUN /opt/pilotfish/bin/python3 -c "import service.__main__, service.process.server, service.cli.serve, service.cli.probes, \
    service.cli.commands, service.cli.produce; \
    import concurrent.futures.thread, encodings.idna"

ENV PATH=/opt/pilotfish/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PILOTFISH_ADMIN_HOST=0.0.0.0

USER 10001:10001
EXPOSE 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=15s --retries=3 CMD ["pilotfish", "healthcheck"]
ENTRYPOINT ["pilotfish"]
CMD ["serve"]
