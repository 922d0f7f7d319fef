"""Every importer, in the order in which they are asked whether a document is theirs."""

from __future__ import annotations

from lab.engine.formats.atif import Atif
from lab.engine.formats.base import Format
from lab.engine.formats.mini_swe_agent import MiniSweAgent
from lab.engine.formats.swe_agent import SweAgent

FORMATS: tuple[Format, ...] = (Atif(), MiniSweAgent(), SweAgent())
