"""Tasks whose id names a repository by the rule of its benchmark get it."""

import re

from django.db import migrations

# The rules of the release that this migration came with.
_OWNER = r"(?P<owner>[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)"
_RULES = (
    re.compile(rf"instance_{_OWNER}__(?P<name>[A-Za-z0-9._-]+?)-[0-9a-f]{{40}}(?:-v[0-9a-z]+)?"),
    re.compile(rf"{_OWNER}__(?P<name>[A-Za-z0-9._-]+?)\.[0-9a-f]{{8}}(?:\..+)?"),
    re.compile(rf"{_OWNER}__(?P<name>[A-Za-z0-9._-]+)-[0-9]+"),
)
_BATCH = 500


def name_repositories(apps, schema_editor):
    tasks = apps.get_model("lab", "Task").objects.using(schema_editor.connection.alias)
    named = []
    for task in tasks.filter(repository="", slug__contains="__").only("pk", "slug"):
        found = next((match for rule in _RULES if (match := rule.fullmatch(task.slug))), None)
        if found is not None:
            task.repository = f"{found['owner']}/{found['name']}"
            named.append(task)
    tasks.bulk_update(named, ["repository"], batch_size=_BATCH)


class Migration(migrations.Migration):
    dependencies = [
        ("lab", "0015_experiment_plans"),
    ]

    operations = [
        migrations.RunPython(name_repositories, migrations.RunPython.noop),
    ]
