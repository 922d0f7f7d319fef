"""Ringing for live pages: "something of a run is new, look now".

A ring carries nothing and may get lost: pages are made from the log, and watchers look by themselves once a
second. On SQLite nobody rings, because watchers see each commit there. On PostgreSQL a ring is part of the
transaction, and is heard when it is committed. With LAB_REDIS_URL it is sent through Channels' layer as well,
so that a pooler or a broken LISTEN between lab and database delays nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time

from channels.layers import BaseChannelLayer, get_channel_layer
from django.conf import settings
from django.db import connection, transaction

NOTIFY_CHANNEL = "lab_news"
GROUP = "lab.news"
# Measured: a ring for each event made a burst of 4,000 eighteen times slower than one every 50 ms.
RING_SECONDS = 0.05
SEND_SECONDS = 5.0
_AWAY_SECONDS = 5.0

_log = logging.getLogger(__name__)


def ring() -> None:
    """Let the watchers of every process look, as soon as the transaction is committed."""
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute(f"NOTIFY {NOTIFY_CHANNEL}")
    if settings.LAB_REDIS_URL:
        transaction.on_commit(_bell.ring, robust=True)


def layer() -> BaseChannelLayer:
    """The channel layer of the settings."""
    found = get_channel_layer()
    if found is None:
        raise ConnectionError("the settings name no channel layer")
    return found


class _LayerBell:
    """Rings through the channel layer from a thread of its own: nobody waits for it."""

    def __init__(self) -> None:
        # Guards the thread: requests and the threads of a run ring at once.
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._process = 0

    def ring(self) -> None:
        self._wanted.set()
        if self._thread is not None and self._process == os.getpid() and self._thread.is_alive():
            return
        with self._lock:
            if self._thread is None or self._process != os.getpid() or not self._thread.is_alive():
                self._process = os.getpid()
                self._thread = threading.Thread(target=self._serve, name="doorbell", daemon=True)
                self._thread.start()

    def _serve(self) -> None:
        # One loop for good: the layer keeps a connection for each.
        loop = asyncio.new_event_loop()
        away = False
        while True:
            self._wanted.wait()
            self._wanted.clear()
            try:
                loop.run_until_complete(_send())
            except Exception as error:
                if not away:
                    what = str(error) or type(error).__name__
                    _log.warning("LAB_REDIS_URL: the doorbell cannot be rung (%s)", what)
                away = True
                loop.run_until_complete(_forget_connection())
                time.sleep(_AWAY_SECONDS)
            else:
                away = False
                time.sleep(RING_SECONDS)


async def _send() -> None:
    async with asyncio.timeout(SEND_SECONDS):
        await layer().group_send(GROUP, {"type": "news"})


async def _forget_connection() -> None:
    try:
        async with asyncio.timeout(SEND_SECONDS):
            await layer().flush()
    except Exception as error:
        _log.debug("the layer's connection cannot be closed (%s)", error)


_bell = _LayerBell()
