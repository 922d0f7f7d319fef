"""Addresses of the lab's pages and of its API."""

from django.urls import include, path

from lab.web import (
    experiments,
    health,
    home,
    own_settings,
    sign_in,
    tasks,
)

urlpatterns = [
    path("", home.home, name="home"),
    path("launch/", home.launch, name="launch"),
    path("launch/without-isolation/", home.without_isolation, name="without_isolation"),
    path("experiments/", experiments.experiment_list, name="experiments"),
    path("", include("lab.web.experiment_form")),
    path("experiments/<int:pk>/", experiments.experiment_detail, name="experiment"),
    path("", include("lab.web.experiment_asks")),
    path("", include("lab.web.runs")),
    path("", include("lab.web.imports")),
    path("", include("lab.web.comparisons")),
    path("", include("lab.web.analysis")),
    path("", include("lab.web.sample")),
    path("", include("lab.web.machine")),
    path("tasks/", tasks.task_list, name="tasks"),
    path("tasks/<int:pk>/", tasks.task_detail, name="task"),
    path("", include("lab.web.harnesses")),
    path("", include("lab.web.harness_editor")),
    path("", include("lab.web.endpoints")),
    path("", include("lab.web.endpoint_models")),
    path("", include("lab.web.replays")),
    path("", include("lab.web.exports")),
    path("", include("lab.web.preflights")),
    path("settings/", own_settings.person_settings, name="settings"),
    path("settings/theme/", own_settings.theme, name="theme"),
    path("settings/password/", own_settings.password, name="password"),
    path("", include("lab.web.people")),
    path("", include("lab.web.tokens")),
    path("sign-in/", sign_in.sign_in, name="sign_in"),
    path("sign-in/<str:token>/", sign_in.sign_in_by_link, name="sign_in_by_link"),
    path("sign-out/", sign_in.sign_out, name="sign_out"),
    path("api/v1/", include("lab.api.urls")),
    path("api/otlp/", include("lab.api.otlp")),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
]
