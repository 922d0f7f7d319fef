"""Addresses of the lab's pages."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
