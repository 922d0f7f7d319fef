"""Forms of endpoints, models and prices. They keep what was typed; the services say what it means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms

from lab.models import Endpoint, Model, PriceCard
from lab.services.model_settings import BASES
from lab.services.price_cards import BASIS_WORDS, DERIVED_FROM, RATES
from lab.web.forms import beside_its_field, without_pasted_key


def _text(label: str) -> forms.CharField:
    return forms.CharField(label=label, required=False, strip=False)


class TypedForm(forms.Form):
    """Fields as text, and a service's errors beside them."""

    def typed(self) -> dict[str, str]:
        """Field -> what stands in it."""
        return {name: str(self.data.get(name, "")) for name in self.fields if name in self.data}

    def take_errors(self, errors: Mapping[str, str]) -> None:
        """Put each error beside the field it names; the rest stands on top."""
        self.full_clean()
        for name, text in errors.items():
            shown = name in self.fields
            self.add_error(name if shown else None, beside_its_field(name, text) if shown else text)


class EndpointSettingsForm(TypedForm):
    """Where an endpoint is and how it is asked. Values of headers are typed here and shown nowhere."""

    name = _text("Name in the lab")
    base_url = _text("Base URL")
    key_variable = _text("Variable that holds the key")
    headers = _text("Headers to add or replace")
    concurrency_limit = _text("Runs at once")
    connect_timeout = _text("Time to connect")
    read_timeout = _text("Longest silence")

    def clean(self) -> None:
        without_pasted_key(self)

    @classmethod
    def of(cls, endpoint: Endpoint) -> EndpointSettingsForm:
        """Filled with what holds now."""
        return cls(
            initial={
                "name": endpoint.name,
                "base_url": endpoint.base_url,
                "key_variable": endpoint.key_variable,
                "concurrency_limit": endpoint.concurrency_limit,
                "connect_timeout": f"{endpoint.connect_timeout:g}",
                "read_timeout": f"{endpoint.read_timeout:g}",
            }
        )


class ModelSettingsForm(TypedForm):
    """What is sent with every request of a model, and how its calls are priced."""

    sampling = _text("Sampling")
    extra_body = _text("Extra body")
    max_tokens_per_turn = _text("Cap per turn")
    context_window = _text("Context window")
    price_basis = _text("Price basis")
    price_provider = _text("Provider in the price table")
    price_model = _text("Model in the price table")

    @property
    def bases(self) -> list[tuple[str, str, bool]]:
        """Choices of the price basis: value, words, whether it is chosen."""
        chosen = self["price_basis"].value()
        return [(name, BASIS_WORDS[name], name == chosen) for name in BASES]

    @classmethod
    def of(cls, model: Model) -> ModelSettingsForm:
        """Filled with what holds now."""
        plain = ("max_tokens_per_turn", "context_window", "price_basis", "price_provider", "price_model")
        initial = {name: getattr(model, name) for name in plain}
        for name in ("sampling", "extra_body"):
            value = getattr(model, name)
            initial[name] = json.dumps(value, indent=2, ensure_ascii=False) if value else ""
        return cls(initial=initial)


class PriceCardForm(TypedForm):
    """A price card of one of the three kinds; only the fields of the chosen kind are read."""

    basis = _text("Kind")
    input = _text("Input")
    cache_read = _text("Cached input")
    cache_write = _text("Written to the cache")
    cache_write_1h = _text("Written for an hour")
    output = _text("Output")
    gpus = _text("GPUs")
    usd_per_gpu_hour = _text("Price of a GPU for an hour")
    tokens_per_second = _text("Tokens a second, at its best")
    utilisation = _text("Utilisation")
    table_provider = _text("Provider of the hosted twin")
    table_model = _text("Model of the hosted twin")
    source = _text("Source")
    valid_from = _text("From")
    valid_until = _text("Until")

    @property
    def kinds(self) -> list[tuple[str, str, bool]]:
        """Choices of the kind: value, words, whether it is chosen."""
        chosen = self["basis"].value() or PriceCard.Basis.CARD
        return [(value, str(words), value == chosen) for value, words in PriceCard.Basis.choices]

    def values(self) -> dict[str, Any]:
        """What `price_cards.add` takes."""
        typed = self.typed()
        apart = ("basis", "source", "valid_from", "valid_until")
        of_the_card = (*RATES, *DERIVED_FROM, "table_provider", "table_model")
        return {
            **{name: typed.get(name, "") for name in apart},
            "typed": {name: typed.get(name, "") for name in of_the_card},
        }
