from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('lab', '0002_control'),
    ]

    operations = [
        migrations.AddField(
            model_name='attempt',
            name='doubted_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='attempt',
            name='lost_after',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='attempt',
            name='workers_lost',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
    ]
