"""The engine: one attempt at one task, in pure Python.

Nothing below this package imports Django, Celery or Channels, so a run can be made, stored as JSON lines
and read again without a database.
"""
