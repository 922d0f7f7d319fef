"""Sockets of live pages: who may watch, what was missed, what comes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast
from urllib.parse import parse_qs, urlsplit

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.http.request import split_domain_port, validate_host

from lab.live import messages
from lab.live.comparison_feed import COMPARISON, comparison_now
from lab.live.grid_feed import grid_now
from lab.live.hub import Message, Topic, Viewer
from lab.live.list_feed import rows_now
from lab.live.run_feed import current_draft, current_panel
from lab.live.tail import hub, run_states
from lab.models import Experiment, Role, Run
from lab.services import access
from lab.services.comparisons import MOST_RUNS
from lab.services.trajectories import Batch, LogReader

ALIVE_SECONDS = 2.0
MEMBER_SECONDS = 10.0
_REPLAYED_AT_ONCE = 100
_NUMBERS = 200


class LiveConsumer(AsyncWebsocketConsumer, ABC):
    """What the sockets of runs and of lists share: access, the queue, the task that sends."""

    # Who may watch; a socket that does not say so is no route of the lab's.
    access: ClassVar[Role]
    topic: Topic
    viewer: Viewer
    sender: asyncio.Task[None] | None = None

    @property
    def _scope(self) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", self.scope)

    async def connect(self) -> None:
        if not same_origin(self._scope) or not await self._may_watch():
            await self.close()
            return
        self.viewer = Viewer(asyncio.get_running_loop())
        await self.accept()
        self.sender = asyncio.create_task(self._send_everything())

    async def disconnect(self, code: int) -> None:
        if self.sender is not None:
            hub.leave(self.topic, self.viewer)
            self.sender.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.sender

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Pages have nothing to say here."""

    @database_sync_to_async
    def _may_watch(self) -> bool:
        return access.holds(self._scope["user"], self.access) and self._find()

    @database_sync_to_async
    def _may_still_watch(self) -> bool:
        """Whether the session is still there and its person still belongs to the lab."""
        session, user = self._scope["session"], self._scope["user"]
        fresh = User.objects.filter(pk=user.pk).first() or AnonymousUser()
        return session.exists(session.session_key) and access.holds(fresh, self.access)

    @abstractmethod
    def _find(self) -> bool:
        """Set the topic; False when there is no such thing."""

    async def _send_everything(self) -> None:
        try:
            await self._begin()
            checked_at = time.monotonic()
            while True:
                if time.monotonic() - checked_at > MEMBER_SECONDS:
                    if not await self._may_still_watch():
                        await self.close()
                        return
                    checked_at = time.monotonic()
                try:
                    async with asyncio.timeout(ALIVE_SECONDS):
                        message = await self.viewer.next()
                except TimeoutError:
                    await self.send(text_data=messages.alive())
                    continue
                if message is None:
                    await self._catch_up()
                else:
                    await self._pass_on(message)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception:
            # The page reconnects and says what it has; better than a socket that is silent for ever.
            await self.close(code=1011)
            raise

    @abstractmethod
    async def _begin(self) -> None:
        """Join the topic and send what the page lacks."""

    @abstractmethod
    async def _catch_up(self) -> None:
        """The queue was dropped: send what was in it from the database."""

    async def _pass_on(self, message: Message) -> None:
        await self.send(text_data=message.text)


class RunConsumer(LiveConsumer):
    """One run: replays what comes after `?after=`, then follows.

    It joins first and reads the log then, so that nothing falls between the two.
    """

    access = Role.VIEWER
    sent: int = 0

    def _find(self) -> bool:
        self.topic = Topic("run", int(self._scope["url_route"]["kwargs"]["run_id"]))
        self.sent = next(iter(_numbers(self._scope, "after")), 0)
        return Run.objects.filter(pk=self.topic.key).exists()

    async def _begin(self) -> None:
        hub.join(self.topic, self.viewer, position=await self._last_seq())
        await self._catch_up()

    async def _catch_up(self) -> None:
        """Send what the log holds after the last number sent, at the pace of this browser."""
        reader = LogReader(run_id=self.topic.key, after=self.sent)
        while batch := await self._read(reader):
            await self._send_batch(batch)
        for message in await self._now():
            await self.send(text_data=message.text)
        await self.send(text_data=messages.caught_up(self.sent))

    async def _pass_on(self, message: Message) -> None:
        if message.after != message.seq and message.seq <= self.sent:
            return
        if message.after > self.sent:
            await self._catch_up()
            return
        await self.send(text_data=message.text)
        self.sent = max(self.sent, message.seq)

    async def _send_batch(self, batch: Batch) -> None:
        message = messages.steps(batch)
        await self.send(text_data=message.text)
        self.sent = batch.last

    @database_sync_to_async
    def _last_seq(self) -> int:
        return Run.objects.filter(pk=self.topic.key).values_list("last_seq", flat=True).get()

    @database_sync_to_async
    def _read(self, reader: LogReader) -> Batch | None:
        return reader.read(limit=_REPLAYED_AT_ONCE)

    @database_sync_to_async
    def _now(self) -> list[Message]:
        """Everything beside the steps as it is now."""
        panel = current_panel(self.topic.key)
        draft = current_draft(self.topic.key, seq=self.sent)
        found = [draft] if draft else []
        if panel is not None:
            parts = list(panel.parts.values())
            found.insert(0, messages.parts(parts, status=panel.status, last=panel.last_seq))
        return found


class ListConsumer(LiveConsumer):
    """A list of runs: the rows in `?rows=` as they are now, then each row that changes."""

    shown: Sequence[int] = ()

    async def _begin(self) -> None:
        self.shown = _numbers(self._scope, "rows")
        hub.join(self.topic, self.viewer, position=0)
        await self._catch_up()

    async def _catch_up(self) -> None:
        message = await database_sync_to_async(rows_now)(self.topic, shown=self.shown)
        await self.send(text_data=message.text)


class ExperimentConsumer(ListConsumer):
    """The rows of one experiment."""

    access = Role.VIEWER

    def _find(self) -> bool:
        self.topic = Topic("experiment", int(self._scope["url_route"]["kwargs"]["experiment_id"]))
        return Experiment.objects.filter(pk=self.topic.key).exists()


class GridConsumer(LiveConsumer):
    """The grid of one experiment: what changed after the event `?mark=`, then each cell that changes."""

    access = Role.VIEWER
    mark: int = 0

    def _find(self) -> bool:
        self.topic = Topic("grid", int(self._scope["url_route"]["kwargs"]["experiment_id"]))
        self.mark = next(iter(_numbers(self._scope, "mark", digits=18)), 0)
        return Experiment.objects.filter(pk=self.topic.key).exists()

    async def _begin(self) -> None:
        hub.join(self.topic, self.viewer, position=self.mark)
        await self._catch_up()

    async def _catch_up(self) -> None:
        message = await database_sync_to_async(grid_now)(self.topic, mark=self.mark)
        await self.send(text_data=message.text)

    async def _pass_on(self, message: Message) -> None:
        self.mark = max(self.mark, message.seq)
        await super()._pass_on(message)


class ComparisonConsumer(LiveConsumer):
    """The runs `?runs=` side by side: how far each is, whenever one went on. Any order is one topic."""

    access = Role.VIEWER

    def _find(self) -> bool:
        runs = tuple(sorted(set(_numbers(self._scope, "runs"))))
        self.topic = Topic(COMPARISON, 0, runs)
        return 0 < len(runs) <= MOST_RUNS and Run.objects.filter(pk__in=runs).count() == len(runs)

    async def _begin(self) -> None:
        hub.join(self.topic, self.viewer, position=0)
        await self._catch_up()

    async def _catch_up(self) -> None:
        states = await database_sync_to_async(run_states)(list(self.topic.runs))
        await self.send(text_data=comparison_now(self.topic, states).text)


class HomeConsumer(ListConsumer):
    """The rows of what runs now and of what ends while one watches."""

    access = Role.VIEWER

    def _find(self) -> bool:
        self.topic = Topic("home", 0)
        return True


def _numbers(scope: Mapping[str, Any], name: str, *, digits: int = 9) -> list[int]:
    """The numbers of a query parameter, separated by commas; what is none is left out."""
    query = parse_qs(scope.get("query_string", b"").decode("ascii", "replace"))
    texts = query.get(name, [""])[0].split(",")[:_NUMBERS]
    return [int(text) for text in texts if text.isdecimal() and len(text) <= digits]


def same_origin(scope: Mapping[str, Any]) -> bool:
    """Whether the page that asks was served by this very host and port, or by a trusted origin.

    Cookies do not know ports: without this, a page of another program on this machine could watch. And the
    host must be a name of the lab's own: a foreign one that leads here (DNS rebinding) is refused.
    """
    headers = dict(scope.get("headers", []))
    origin = headers.get(b"origin", b"").decode("latin-1")
    host = headers.get(b"host", b"").decode("latin-1")
    if not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        return False
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    return bool(origin) and urlsplit(origin).netloc == host
