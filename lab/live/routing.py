"""Addresses of the sockets."""

from __future__ import annotations

from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer
from django.urls import path, re_path

from lab.live.consumers import ExperimentConsumer, HomeConsumer, RunConsumer

NOT_FOUND = 4404


class NowhereConsumer(AsyncWebsocketConsumer):
    """Any other address: the browser is told so, which it would not be of a refused handshake."""

    async def connect(self) -> None:
        await self.accept()
        await self.close(code=NOT_FOUND)


# Django's `path` is typed for pages; Channels' router takes applications.
route: Any = path
route_of_any: Any = re_path
websocket_urlpatterns: list[Any] = [
    route("ws/runs/<int:run_id>/", RunConsumer.as_asgi()),
    route("ws/experiments/<int:experiment_id>/", ExperimentConsumer.as_asgi()),
    route("ws/home/", HomeConsumer.as_asgi()),
    route_of_any("", NowhereConsumer.as_asgi()),
]
