"""Columns of a kind that Django does not have."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models.fields.json import KeyTransform, KeyTransformFactory

if TYPE_CHECKING:
    _JSONField = models.JSONField[Any, Any]
else:
    _JSONField = models.JSONField


class ExactJSONField(_JSONField):
    """JSON that is read back as it was written: for whatever a model is sent.

    PostgreSQL's `jsonb`, which Django uses, orders the keys of an object anew and rewrites numbers (1e16
    becomes 10000000000000000): a tool's schema would read differently there. Its `json` keeps the text.
    """

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        return "json" if connection.vendor == "postgresql" else super().db_type(connection)

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        if connection.vendor != "postgresql":
            return super().get_db_prep_value(value, connection, prepared)
        return value if hasattr(value, "as_sql") else json.dumps(value, cls=self.encoder)

    def get_transform(self, name: str) -> Any:
        found = super().get_transform(name)
        return _KeyFactory(name) if isinstance(found, KeyTransformFactory) else found


class _Key(KeyTransform):
    """A value by its key. PostgreSQL compares what is in `jsonb` only."""

    def preprocess_lhs(self, compiler: Any, connection: BaseDatabaseWrapper) -> Any:
        left, parameters, keys = super().preprocess_lhs(compiler, connection)
        return f"({left})::jsonb" if connection.vendor == "postgresql" else left, parameters, keys


class _KeyFactory:
    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **options: Any) -> _Key:
        return _Key(self._name, *args, **options)


def read_json_as_text(connection: Any) -> None:
    """Let a new connection to PostgreSQL give `json` as `jsonb`: as text, which the field reads."""
    adapters = connection.connection.adapters
    text = 0
    adapters.register_loader("json", adapters.get_loader(adapters.types["jsonb"].oid, text))
