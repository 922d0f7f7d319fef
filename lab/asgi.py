"""The lab as an ASGI application: pages over HTTP, live pages over websockets."""

from __future__ import annotations

import os
import warnings

from django.core.asgi import get_asgi_application

from lab.terminal import log_what_nobody_caught

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lab.settings")
log_what_nobody_caught()
# With LAB_DEBUG static files are read in pieces by a thread; each would warn of it once.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")
# Before anything that needs models.
pages = get_asgi_application()

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.security.websocket import AllowedHostsOriginValidator  # noqa: E402
from django.db import connections  # noqa: E402

from lab.addresses import share_connections  # noqa: E402
from lab.live.routing import websocket_urlpatterns  # noqa: E402
from lab.static_files import StaticFiles  # noqa: E402

share_connections(connections.settings["default"])
application = ProtocolTypeRouter(
    {
        "http": StaticFiles(pages),
        "websocket": AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns))),
    }
)
