"""Addresses of the lab's pages."""

from django.urls import include, path

from lab.web import endpoints, experiments, harnesses, health, home, people, tasks

urlpatterns = [
    path("", home.home, name="home"),
    path("launch/", home.launch, name="launch"),
    path("launch/without-isolation/", home.without_isolation, name="without_isolation"),
    path("experiments/", experiments.experiment_list, name="experiments"),
    path("experiments/<int:pk>/", experiments.experiment_detail, name="experiment"),
    path("", include("lab.web.runs")),
    path("tasks/", tasks.task_list, name="tasks"),
    path("tasks/<int:pk>/", tasks.task_detail, name="task"),
    path("harnesses/", harnesses.harness_list, name="harnesses"),
    path("harnesses/<int:pk>/", harnesses.harness_detail, name="harness"),
    path("endpoints/", endpoints.endpoint_list, name="endpoints"),
    path("endpoints/new/", endpoints.endpoint_new, name="endpoint_new"),
    path("settings/", people.person_settings, name="settings"),
    path("settings/theme/", people.theme, name="theme"),
    path("sign-in/", people.sign_in, name="sign_in"),
    path("sign-in/<str:token>/", people.sign_in_by_link, name="sign_in_by_link"),
    path("sign-out/", people.sign_out, name="sign_out"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
]
