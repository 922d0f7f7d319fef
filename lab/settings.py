"""Settings. Each is read once, here; `deploy/env.example` explains every one of them."""

from __future__ import annotations

import contextlib
import secrets
from logging import LogRecord
from pathlib import Path

from django.core.exceptions import PermissionDenied
from environs import Env, EnvError

from lab import addresses

BASE_DIR = Path(__file__).resolve().parent.parent
IN_CHECKOUT = (BASE_DIR / "manage.py").exists()

env = Env()
if IN_CHECKOUT:
    env.read_env(str(BASE_DIR / ".env"), recurse=False)


def secret(name: str, default: str = "") -> str:
    """A secret from the variable `name`, or from the file that `name`_FILE points to.

    Raises:
        EnvError: the file cannot be read; going on without the secret would look like a wrong key later.
    """
    path = env.str(f"{name}_FILE", "")
    if not path:
        return env.str(name, default)
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise EnvError(f"{name}_FILE: {path} cannot be read ({error}); name a readable text file.") from None


def _default_data_folder() -> Path:
    if IN_CHECKOUT:
        return BASE_DIR / "var"
    return Path(env.str("XDG_DATA_HOME", str(Path.home() / ".local" / "share"))) / "trajectory-lab"


def _data_folder() -> Path:
    """
    Raises:
        EnvError: it is a file.
    """
    folder = Path(env.str("LAB_DATA_DIR", "") or _default_data_folder()).absolute()
    if folder.is_file():
        raise EnvError(
            f"LAB_DATA_DIR: {folder} is a file; name a folder: LAB_DATA_DIR=/path/to/folder "
            "(in the environment or in .env)."
        )
    return folder


def _port() -> int:
    """
    Raises:
        EnvError: no port can have that number.
    """
    value = env.str("LAB_PORT", "8000").strip()
    if not (value.isascii() and value.isdecimal() and len(value) < 6 and 1 <= int(value) <= 65535):
        raise EnvError(
            f"LAB_PORT: {value!r} is no port; use a whole number from 1 to 65535, such as LAB_PORT=8000."
        )
    return int(value)


LAB_DATA_DIR = _data_folder()
LAB_HOST = env.str("LAB_HOST", "127.0.0.1")
LAB_PORT = _port()
LAB_RUN_SLOTS = env.int("LAB_RUN_SLOTS", 8)
LAB_LEASE_SECONDS = env.float("LAB_LEASE_SECONDS", 15.0)
LAB_STOP_SECONDS = env.float("LAB_STOP_SECONDS", 5.0)
LAB_RETRY_SECONDS = env.float("LAB_RETRY_SECONDS", 900.0)
LAB_SANDBOX = env.str("LAB_SANDBOX", "")
LAB_SANDBOX_UID = env.int("LAB_SANDBOX_UID", 65534)
LAB_SANDBOX_DISK_GB = env.float("LAB_SANDBOX_DISK_GB", 10.0)
LAB_DOCKER_HOST = env.str("LAB_DOCKER_HOST", "")
LAB_DOCKER_DISK_GB = env.float("LAB_DOCKER_DISK_GB", 50.0)
LAB_PREPARED_CONTAINERS = env.int("LAB_PREPARED_CONTAINERS", 1)
LAB_PRACTICE_IMAGE = env.str("LAB_PRACTICE_IMAGE", "python:3.13-bookworm")
LAB_PACKAGE_INDEX = env.str("LAB_PACKAGE_INDEX", "")
LAB_KEY_VARIABLES = env.list("LAB_KEY_VARIABLES", ["*_KEY", "*_TOKEN"])
LAB_REDIS_URL = addresses.redis("LAB_REDIS_URL", secret("LAB_REDIS_URL"))
LAB_BROKER_URL = secret("LAB_BROKER_URL")
LAB_SCRIPTED_CHUNK_SECONDS = env.float("LAB_SCRIPTED_CHUNK_SECONDS", 0.015)


def _made_once(path: Path) -> str:
    """The secret key of this data folder, made at the first start.

    An unwritable folder is reported by a system check, which names it, and not here by a traceback.
    """
    try:
        return path.read_text().strip()
    except OSError:
        value = secrets.token_urlsafe(48)
    try:
        # Owner only, but the user that agents' commands run as must be able to walk through to theirs.
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
        # Exclusive creation: of several processes that start at once one makes the key, the others read it.
        path.touch(mode=0o600, exist_ok=False)
        path.write_text(value)
    except FileExistsError:
        with contextlib.suppress(OSError):
            return path.read_text().strip() or value
    except OSError:
        pass
    return value


SECRET_KEY = secret("LAB_SECRET_KEY") or _made_once(LAB_DATA_DIR / "secret_key")
DEBUG = env.bool("LAB_DEBUG", False)
# Loopback always: `manage.py up` and probes on this machine ask there, and no foreign name can pretend to it.
ALLOWED_HOSTS = [*dict.fromkeys([*env.list("LAB_ALLOWED_HOSTS", []), "127.0.0.1", "localhost", "[::1]"])]
CSRF_TRUSTED_ORIGINS: list[str] = env.list("LAB_TRUSTED_ORIGINS", [])
LAB_HTTPS = env.bool("LAB_HTTPS", any(origin.startswith("https://") for origin in CSRF_TRUSTED_ORIGINS))
LAB_HSTS_SECONDS = env.int("LAB_HSTS_SECONDS", 31_536_000)

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "django_htmx",
    "lab.apps.LabConfig",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    # Pages of a run are ten times smaller compressed. Tokens in them are masked anew in each answer.
    "django.middleware.gzip.GZipMiddleware",
    "lab.web.http.ContentSecurityPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "lab.web.http.AccessMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "lab.urls"
ASGI_APPLICATION = "lab.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LOGIN_URL = "/sign-in/"
LOGIN_REDIRECT_URL = "/"
SESSION_COOKIE_NAME = "lab_session"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 14 * 24 * 3600
CSRF_COOKIE_NAME = "lab_csrf"
# No script reads it: forms and htmx carry the token of the page.
CSRF_COOKIE_HTTPONLY = True
# A megabyte or two pasted into a field is refused beside it and not by a bare 400.
DATA_UPLOAD_MAX_MEMORY_SIZE = 8_000_000
# A harness has up to 128 tools, each with a dozen fields in its editor.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 2_500
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"
# Behind a proxy with TLS. Uvicorn believes X-Forwarded-Proto of a proxy on this machine.
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = LAB_HTTPS
SECURE_HSTS_SECONDS = LAB_HSTS_SECONDS if LAB_HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = SECURE_HSTS_SECONDS > 0
SECURE_REDIRECT_EXEMPT = ["^healthz$", "^readyz$"]

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

_ASSETS = BASE_DIR if IN_CHECKOUT else Path(__file__).resolve().parent
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [_ASSETS / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "lab.web.http.page_context",
            ],
        },
    }
]

STATIC_URL = "/static/"
STATICFILES_DIRS = [_ASSETS / "static"]
# Serve from the source folders: nothing to collect before the first page.
WHITENOISE_USE_FINDERS = True

_BUILT_IN_DATABASE = {
    "ENGINE": addresses.SQLITE,
    "NAME": LAB_DATA_DIR / "lab.sqlite3",
    # Tests run several real processes against one database, which needs a file.
    "TEST": {"NAME": LAB_DATA_DIR / "test.sqlite3"},
}
_database_url = secret("DATABASE_URL")
DATABASES = {"default": addresses.database(_database_url) if _database_url else _BUILT_IN_DATABASE}
if DATABASES["default"]["ENGINE"] == addresses.SQLITE:
    # Four writers reached 2,200 events/s with these and never saw "database is locked"; with the defaults of
    # Django eight writers failed in 1,103 of 1,600 rows.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }

CHANNEL_LAYERS = addresses.channel_layers(LAB_REDIS_URL)

CELERY_BROKER_FOLDER = LAB_DATA_DIR / "queue"

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = False


def _without_trace_of_refusals(record: LogRecord) -> bool:
    """Where in the lab somebody was refused is no news; the line says what."""
    if record.exc_info and isinstance(record.exc_info[1], PermissionDenied):
        record.exc_info = None
    return True


# Short lines: `manage.py up` shows those of all its processes in one terminal.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "short": {
            "()": "lab.terminal.ShortFormatter",
            "format": "%(asctime)s %(levelname)s %(name)s: %(message)s",
            "datefmt": "%H:%M:%S",
        }
    },
    "filters": {
        "refusals": {"()": "django.utils.log.CallbackFilter", "callback": _without_trace_of_refusals}
    },
    "handlers": {
        "terminal": {"class": "logging.StreamHandler", "formatter": "short", "filters": ["refusals"]}
    },
    "root": {"handlers": ["terminal"], "level": "WARNING"},
    # Uvicorn gives it a handler of its own, whose lines nobody redacts. Naming it here undoes what Uvicorn
    # had set for the loggers below it: without a level each request would be a line.
    "loggers": {"uvicorn": {"handlers": [], "propagate": True, "level": "WARNING"}},
}
