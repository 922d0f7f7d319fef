"""Who may do what, and what was agreed to once for the whole lab."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class Role(models.TextChoices):
    """Roles in rising order; each may do everything the ones before it may."""

    VIEWER = "viewer", "viewer"
    ANNOTATOR = "annotator", "annotator"
    OPERATOR = "operator", "operator"
    ADMIN = "admin", "admin"

    def includes(self, other: Role) -> bool:
        order = list(Role)
        return order.index(self) >= order.index(other)


class Membership(models.Model):
    """A person's role in the lab and how pages look for them."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="membership")
    role = models.CharField(max_length=16, choices=Role, default=Role.VIEWER)
    theme = models.CharField(
        max_length=8,
        choices=[("", "as the system"), ("light", "light"), ("dark", "dark")],
        blank=True,
        default="",
    )
    single_keys = models.BooleanField(default=True)

    class Meta:
        db_table = "lab_membership"

    def __str__(self) -> str:
        return f"{self.user} ({self.role})"


class SignInLink(models.Model):
    """A link that signs somebody in once. Only the hash of its token is kept."""

    token_hash = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")

    class Meta:
        db_table = "lab_sign_in_link"

    def __str__(self) -> str:
        return f"sign-in link for {self.user}"


class Consent(models.Model):
    """Something an admin agreed to once for the lab, such as runs without isolation."""

    name = models.CharField(max_length=64, unique=True)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "lab_consent"

    def __str__(self) -> str:
        return self.name
