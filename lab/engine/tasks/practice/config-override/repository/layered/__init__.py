"""Settings from defaults, files, environment and command line."""

from layered.settings import Settings
from layered.sources import from_environment, from_json, from_options

__all__ = ["Settings", "from_environment", "from_json", "from_options"]
