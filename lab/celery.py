"""The queue. A message only says "claim the next eligible run"; what is to be done stands in the database."""

from __future__ import annotations

import os
import ssl
import warnings
from pathlib import Path
from typing import Any

from celery import Celery, signals  # type: ignore[import-untyped] # has no types
from celery.platforms import SecurityWarning  # type: ignore[import-untyped] # has no types

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "lab.settings")
# The checks load every page; `manage.py up` has run those that a worker depends on.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

from django.conf import settings  # noqa: E402
from django.utils.log import configure_logging  # noqa: E402
from kombu.transport import TRANSPORT_ALIASES  # noqa: E402

from lab.addresses import is_redis  # noqa: E402
from lab.folder_transport import make_folders  # noqa: E402
from lab.services.messages import RUNS_QUEUE  # noqa: E402
from lab.terminal import log_what_nobody_caught  # noqa: E402

BUILT_IN_BROKER = "lab-folder://localhost//"
TRANSPORT_ALIASES["lab-folder"] = "lab.folder_transport:Transport"


# A container's only user is often root. Messages are JSON, and agents' commands run as somebody else.
warnings.filterwarnings("ignore", category=SecurityWarning)


def folder_transport_options(folder: Path) -> dict[str, Any]:
    """Options of the built-in broker, whose folders are made.

    Raises:
        OSError: the folder cannot be written.
    """
    make_folders(folder)
    return {
        "folder": str(folder),
        # Kombu's own names, for counting and emptying a queue. One folder: with two of them a message
        # waits for somebody to carry it over.
        "data_folder_in": str(folder / "messages"),
        "data_folder_out": str(folder / "messages"),
        "control_folder": str(folder / "control"),
        # Measured: picked up after 56 ms in the median, at 0.1 % of a core; the default of 1 s is felt.
        "polling_interval": 0.1,
    }


def redis_transport_options() -> dict[str, Any]:
    """Options of a broker that is Redis or Valkey: nothing waits for a silent server without an end."""
    return {
        "socket_connect_timeout": 5,
        # Longer than the second for which the worker lets the server wait for a message.
        "socket_timeout": 10,
        "socket_keepalive": True,
        "health_check_interval": 10,
        # Messages a killed worker had fetched come back after this. Nobody needs them: the tick rings again.
        "visibility_timeout": 3600,
        **_ONE_TRY,
    }


# Of whoever sends: without these, kombu tries to reach a broker that is away for ever. The worker's own
# connection is tried again by Celery.
_ONE_TRY = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}


def _configure(app: Celery) -> None:
    broker = settings.LAB_BROKER_URL or settings.LAB_REDIS_URL
    if not broker:
        options = folder_transport_options(Path(settings.CELERY_BROKER_FOLDER))
    else:
        options = redis_transport_options() if is_redis(broker) else dict(_ONE_TRY)
    app.conf.update(
        broker_url=broker or BUILT_IN_BROKER,
        broker_transport_options=options,
        # Kombu encrypts only if it is told how the server is checked.
        broker_use_ssl={"ssl_cert_reqs": ssl.CERT_REQUIRED} if broker.startswith("rediss:") else None,
        broker_connection_timeout=5,
        # A worker outlives its broker, however long that is away: the runs are in the database.
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        # Acknowledged early: what runs holds back no message.
        worker_enable_prefetch_count_reduction=False,
        task_default_queue=RUNS_QUEUE,
        task_ignore_result=True,
        # Early: a run outlives any visibility timeout, and would start twice; the lease recovers it.
        task_acks_late=False,
        worker_prefetch_multiplier=1,
        accept_content=["json"],
        task_serializer="json",
        result_backend=None,
        worker_pool="lab.worker.pool:TaskPool",
        worker_hijack_root_logger=False,
        worker_send_task_events=False,
        enable_utc=True,
    )


@signals.setup_logging.connect  # type: ignore[untyped-decorator]
def _log_as_the_lab_does(**_: Any) -> None:
    """Celery has handlers of its own, whose lines nobody redacts."""
    configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)
    log_what_nobody_caught()


app = Celery("lab", set_as_current=True)
_configure(app)
app.conf.imports = ("lab.worker.tasks",)
