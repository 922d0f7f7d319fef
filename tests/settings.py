"""The lab's settings as the suite uses them: a data folder of their own and nothing of the developer's.

pytest-django reads the settings before any conftest, so the environment is prepared here.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

for name in [name for name in os.environ if name.startswith("LAB_") and not name.startswith("LAB_TEST_")]:
    del os.environ[name]
# Empty and not absent: what the environment holds wins over a developer's .env. `python -m tests.servers`
# names a PostgreSQL, on which the whole suite then runs.
os.environ["DATABASE_URL"] = os.environ.get("LAB_TEST_DATABASE_URL", "")

_data_folder = tempfile.mkdtemp(prefix="lab-tests-")
atexit.register(shutil.rmtree, _data_folder, ignore_errors=True)
os.environ["LAB_DATA_DIR"] = _data_folder
# Processes that a test starts are the lab itself and must read the lab's own settings.
os.environ["DJANGO_SETTINGS_MODULE"] = "lab.settings"

from lab.settings import *  # noqa: E402, F403
from lab.settings import DATABASES  # noqa: E402

if os.environ["DATABASE_URL"].startswith("postgres"):
    # A test that empties the tables waits for whoever reads them; of the two, a web process that lives on is
    # the one that gives up, and looks again.
    DATABASES["default"]["OPTIONS"]["options"] += " -c deadlock_timeout=30s"

# A million rounds take a third of a second for each password; whoever measures them asks for the lab's own.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
