"""Addresses of the sockets."""

from __future__ import annotations

from typing import Any

from django.urls import path

from lab.live.consumers import ExperimentConsumer, HomeConsumer, RunConsumer

# Django's `path` is typed for pages; Channels' router takes applications.
route: Any = path
websocket_urlpatterns: list[Any] = [
    route("ws/runs/<int:run_id>/", RunConsumer.as_asgi()),
    route("ws/experiments/<int:experiment_id>/", ExperimentConsumer.as_asgi()),
    route("ws/home/", HomeConsumer.as_asgi()),
]
