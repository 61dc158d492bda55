# The image of `runtime: {docker: {image: testbed/worker:…}}`: Python, torch, NumPy and testbed; runs as nobody.
#
# `testbed image build` builds it. The context it sends has wheels/, fetched with this machine's own pip settings, and
# testbed/, the package as it is here, so that nothing is fetched while building: behind a private certificate authority
# or without a network it works as anywhere.
#
# The CUDA image is made from this file as well, with torch's CUDA wheels. They bring CUDA's and NCCL's libraries, and
# the engine adds the driver's, so that a CUDA base would only bring them a second time.
ARG BASE=python:3.11-slim

FROM ${BASE} AS dependencies
ARG PYTHON=3.11
COPY wheels /wheels
RUN python3 -c "import sys; have = '%d.%d' % sys.version_info[:2]; \
        sys.exit(have != '${PYTHON}' and f'the base has Python {have}, the wheels are for ${PYTHON}')" \
    && python3 -m venv /opt/testbed \
    && /opt/testbed/bin/pip install --no-index --no-cache-dir --no-deps --root-user-action=ignore /wheels/*.whl \
    && packages=$(/opt/testbed/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))") \
    && rm -rf "$packages"/torch/include "$packages"/torch/bin/test_* "$packages"/torch/bin/protoc* \
    && echo /opt/testbed/source > "$packages/testbed.pth"

FROM ${BASE}
ARG VERSION
ARG TORCH
COPY --from=dependencies /opt/testbed /opt/testbed
COPY testbed /opt/testbed/source/testbed
RUN /opt/testbed/bin/python -m compileall -q /opt/testbed/source
LABEL testbed.version=${VERSION} testbed.torch=${TORCH}
ENV PATH=/opt/testbed/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp USER=worker
USER 65534:65534
ENTRYPOINT ["python"]
