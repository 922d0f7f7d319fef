from django.apps import AppConfig


class LabConfig(AppConfig):
    name = "lab"
    verbose_name = "Trajectory Lab"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from lab import checks  # noqa: F401 - registers the checks
