"""Tracing, off unless HANGO_OTEL is on. Without it `tracer` costs next to nothing."""

from __future__ import annotations

from django.conf import settings
from opentelemetry import trace

tracer = trace.get_tracer("hango")


def start(*, django: bool = True) -> bool:
    """Begin to send spans by OTLP over HTTP, to where OTEL_EXPORTER_OTLP_ENDPOINT says.

    `django` adds a span for each HTTP request; call it before the handler is built, in the process that
    serves (after any fork). Returns whether tracing is on.
    """
    if not settings.HANGO_OTEL:
        return False
    # Loaded only when asked for: together they take a tenth of a second.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.instrumentation.django import DjangoInstrumentor  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES still win over this name.
    provider = TracerProvider(resource=Resource.create({"service.name": "hango"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    if django:
        DjangoInstrumentor().instrument()
    return True
