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
    # Keys of the labelling page that are others than the lab's own: action -> key.
    label_keys = models.JSONField(default=dict, blank=True, db_default={})

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


class SignInFailure(models.Model):
    """A sign-in that failed, for slowing down whoever guesses. `name` and `address` as they were sent."""

    name = models.CharField(max_length=200)
    address = models.CharField(max_length=64)
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "lab_sign_in_failure"
        indexes = [models.Index(fields=["at"], name="sign_in_failure_at")]

    def __str__(self) -> str:
        return f"failed sign-in of {self.name}"


class ApiToken(models.Model):
    """Lets a program act for a person, in a role no higher than that person's. Only the hash is kept."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    role = models.CharField(max_length=16, choices=Role)
    token_hash = models.CharField(max_length=64, unique=True)
    # What lists show, so that a person tells tokens apart.
    beginning = models.CharField(max_length=16)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "lab_api_token"
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.name} of {self.user}"


class Consent(models.Model):
    """Something an admin agreed to once for the lab, such as runs without isolation."""

    name = models.CharField(max_length=64, unique=True)
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "lab_consent"

    def __str__(self) -> str:
        return self.name
