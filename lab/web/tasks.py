"""Task sets and tasks: what an agent is asked, and whether the task itself is sound."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from lab.models import Role, Run, Task, TaskSet
from lab.render.markdown import render_markdown
from lab.web.http import for_role, holds


@require_safe
@for_role(Role.VIEWER)
def task_list(request: HttpRequest) -> HttpResponse:
    task_sets = TaskSet.objects.prefetch_related("tasks__checks")
    return render(request, "tasks/list.html", {"place": "tasks", "task_sets": task_sets})


@require_safe
@for_role(Role.VIEWER)
def task_detail(request: HttpRequest, pk: int) -> HttpResponse:
    """Statement for everybody; gold patch and hidden tests for operators and admins, on asking."""
    task = get_object_or_404(Task.objects.select_related("task_set", "hidden"), pk=pk)
    runs = Run.objects.filter(task=task).for_rows()[:20]
    context = {
        "place": "tasks",
        "task": task,
        "launch_at": f"/?set={task.task_set_id}#launch",
        "statement": render_markdown(task.statement),
        "check": task.checks.first(),
        # A database may order them otherwise than their file.
        "variables": sorted(task.environment.get("variables") or {}),
        "runs": runs,
        "hidden": task.hidden if holds(request, Role.OPERATOR) else None,
    }
    return render(request, "tasks/detail.html", context)
