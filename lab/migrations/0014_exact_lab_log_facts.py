from django.db import migrations

import lab.models.fields


class Migration(migrations.Migration):
    dependencies = [("lab", "0013_lab_log_facts")]

    operations = [
        migrations.AlterField(
            model_name="importedtrajectory",
            name="facts",
            field=lab.models.fields.ExactJSONField(blank=True, default=dict),
        ),
    ]
