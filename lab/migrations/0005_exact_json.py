from django.db import migrations

import lab.models.fields

COLUMNS = [
    ("event", "payload"),
    ("harnessversion", "config"),
    ("model", "sampling"),
    ("model", "extra_body"),
]


def _change_type(to):
    def change(apps, schema_editor):
        """Nothing on SQLite, where both are text: its tables would be copied."""
        if schema_editor.connection.vendor != "postgresql":
            return
        for model, name in COLUMNS:
            table = schema_editor.quote_name(apps.get_model("lab", model)._meta.db_table)
            column = schema_editor.quote_name(name)
            schema_editor.execute(
                f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {to} USING {column}::{to}", None
            )

    return change


def _state(model, name, **options):
    return migrations.AlterField(model, name, lab.models.fields.ExactJSONField(**options))


class Migration(migrations.Migration):
    dependencies = [("lab", "0004_agent_clock")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(_change_type("json"), _change_type("jsonb"))],
            state_operations=[
                _state("event", "payload"),
                _state("harnessversion", "config"),
                _state("model", "sampling", blank=True, default=dict),
                _state("model", "extra_body", blank=True, default=dict),
            ],
        )
    ]
