# syntax=docker/dockerfile:1
FROM python:3.12-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY run.lock /tmp/run.lock
RUN python -m venv /opt/venv && /opt/venv/bin/pip install --require-hashes -r /tmp/run.lock

FROM python:3.12-slim
RUN useradd --system --uid 10001 --create-home hango && install -d -o hango -g hango -m 700 /data
COPY --from=build /opt/venv /opt/venv
WORKDIR /app
COPY manage.py ./
COPY hango ./hango
COPY sessions_app ./sessions_app
COPY compaction ./compaction
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DJANGO_SETTINGS_MODULE=hango.settings \
    HANGO_HOME=/data \
    HANGO_HOST=0.0.0.0
USER hango
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ.get('PORT', '8000') + '/healthz', timeout=2)"]
# Alone it is the embedded default; docker-compose.yml runs the parts one by one.
CMD ["python", "-m", "hango.run"]
