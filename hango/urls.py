"""Every address of the service."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView

from hango import health

urlpatterns = [
    path("api/v1/", include("sessions_app.urls")),
    path("api/v1/", include("compaction.urls")),
    path("api/schema/", SpectacularAPIView.as_view(), name="schema"),
    path("api/docs/", SpectacularSwaggerView.as_view(url_name="schema"), name="docs"),
    path("admin/", admin.site.urls),
    path("healthz", health.healthz),
    path("readyz", health.readyz),
]

handler400 = "hango.problems.bad_request"
handler404 = "hango.problems.not_found"
handler500 = "hango.problems.server_error"
