"""Every format that trajectories are written in, by the name that pages and commands call it."""

from __future__ import annotations

from lab.engine.formats.exported import Writer
from lab.engine.formats.write_atif import Atif
from lab.engine.formats.write_chat import Chat
from lab.engine.formats.write_mini import MiniSweAgent
from lab.engine.formats.write_predictions import Predictions
from lab.engine.formats.write_tables import Csv, Parquet

WRITERS: tuple[Writer, ...] = (Atif(), MiniSweAgent(), Predictions(), Chat(), Csv(), Parquet())
