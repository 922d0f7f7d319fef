"""Pages of annotation: judges."""

from __future__ import annotations

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
