"""A vocabulary of failures as data: codes, when to use them, and what they mean in other vocabularies."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

CodeId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]


class Code(BaseModel):
    """One kind of failure. `id` stands in stored labels and never gets another meaning.

    `maps_to`: slug of another vocabulary -> ids there that say the same or something wider; empty where
    nothing does. `group`: under which heading it stands, "" for none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: CodeId
    name: Annotated[str, Field(min_length=1, max_length=120)]
    definition: Annotated[str, Field(min_length=1)]
    use_when: str = ""
    not_when: str = ""
    example: str = ""
    group: str = ""
    maps_to: dict[str, tuple[str, ...]] = {}
    retired: bool = False


class Taxonomy(BaseModel):
    """One version's content. `source` says where a vocabulary that others made is published."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slug: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    name: Annotated[str, Field(min_length=1, max_length=200)]
    description: str = ""
    source: str = ""
    codes: tuple[Code, ...]

    def code(self, code_id: str) -> Code | None:
        return next((code for code in self.codes if code.id == code_id), None)

    @property
    def digest(self) -> str:
        """SHA-256 of its canonical JSON."""
        text = json.dumps(
            self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
