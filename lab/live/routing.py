"""Addresses of the sockets."""

from __future__ import annotations

from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer
from django.core.exceptions import ImproperlyConfigured
from django.urls import path, re_path

from lab.live.consumers import (
    ComparisonConsumer,
    ExperimentConsumer,
    GridConsumer,
    HomeConsumer,
    RunConsumer,
)
from lab.services.access import EVERYONE

NOT_FOUND = 4404


class NowhereConsumer(AsyncWebsocketConsumer):
    """Any other address: the browser is told so, which it would not be of a refused handshake."""

    access = EVERYONE

    async def connect(self) -> None:
        await self.accept()
        await self.close(code=NOT_FOUND)


def guarded(routes: list[Any]) -> list[Any]:
    """The routes, when each of their consumers says who may use it.

    Raises:
        ImproperlyConfigured: one says nothing; the lab does not start with it.
    """
    for found in routes:
        consumer = found.callback.consumer_class
        if not hasattr(consumer, "access"):
            raise ImproperlyConfigured(
                f"{consumer.__name__}: nobody has decided who may use it; set `access`"
            )
    return routes


# Django's `path` is typed for pages; Channels' router takes applications.
route: Any = path
route_of_any: Any = re_path
websocket_urlpatterns: list[Any] = guarded(
    [
        route("ws/runs/<int:run_id>/", RunConsumer.as_asgi()),
        route("ws/experiments/<int:experiment_id>/", ExperimentConsumer.as_asgi()),
        route("ws/experiments/<int:experiment_id>/grid/", GridConsumer.as_asgi()),
        route("ws/compare/", ComparisonConsumer.as_asgi()),
        route("ws/home/", HomeConsumer.as_asgi()),
        route_of_any("", NowhereConsumer.as_asgi()),
    ]
)
