"""Prices of tokens, from the package genai-prices or a price file. A model that is not listed there has no known price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from editloupe.agent.spec_names import RULES
from editloupe.rubrics.rubric_files import describe_validation_error, read_yaml
from editloupe.types import Opinion, Outcome, Record, Usage, UserError

MILLION = 1_000_000
Dollars = Annotated[float, Field(ge=0, lt=1e9, allow_inf_nan=False)]


class Price(Record):
    """US dollars per million tokens; reasoning tokens count as output tokens."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = None
    """For input tokens that the provider had cached; by default the price of input."""

    def cost(self, usage: Usage, judge: str = "") -> float:
        """Return the cost of tokens; `judge` is ignored by a single price.

        >>> Price(input=1, output=10, cached=0.5).cost(Usage(input_tokens=1000, cached_tokens=400, output_tokens=100))
        0.0018
        """
        cached = self.input if self.cached is None else self.cached
        fresh = max(0, usage.input_tokens - usage.cached_tokens)
        dollars = fresh * self.input + usage.cached_tokens * cached + usage.output_tokens * self.output
        return round(dollars / MILLION, 9)

    def spread_cost(self, usage: Usage) -> float:
        """Return the cost of tokens that all judges used, as many each."""
        return self.cost(usage)

    def outcome_cost(self, outcome: Outcome) -> float:
        """Return the cost of an outcome."""
        return self.cost(outcome.usage)


class PanelPrice(Price):
    """Prices of the judges of a panel or cascade. Tokens of no particular judge cost as much as the most expensive."""

    members: Mapping[str, Price]

    def cost(self, usage: Usage, judge: str = "") -> float:
        """Return the cost of a judge's tokens."""
        return self.members[judge].cost(usage) if judge in self.members else super().cost(usage)

    def spread_cost(self, usage: Usage) -> float:
        """Return the cost of tokens that all judges used, as many each.

        >>> members = {"a": Price(input=1, output=10), "b": Price(input=3, output=10), RULES: FREE}
        >>> PanelPrice(input=3, output=10, members=members).spread_cost(Usage(input_tokens=1_000_000))
        2.0
        """
        paid = [price.cost(usage) for judge, price in self.members.items() if judge != RULES]
        return round(sum(paid) / len(paid), 9) if paid else 0.0

    def outcome_cost(self, outcome: Outcome) -> float:
        """Return the cost of an outcome, with the tokens of each judge at its own price."""
        if not outcome.opinions:
            return self.cost(outcome.usage)
        return round(sum(self.opinion_cost(member) for member in outcome.opinions), 9)

    def opinion_cost(self, opinion: Opinion) -> float:
        """Return the cost of one judge's opinion; of a panel, the sum of its members."""
        if opinion.opinions:
            return sum(self.opinion_cost(member) for member in opinion.opinions)
        return self.cost(opinion.usage, opinion.judge)


FREE = Price(input=0, output=0)


def price_of(spec: str, table: str | Path | None = None) -> Price | None:
    """Return the price of a judge, or None if it is not known. Nothing is asked of the network.

    Args:
        spec: The judge, such as `openai:gpt-5.1`.
        table: A price file used instead of the list prices in genai-prices. It is read in any case.

    Raises:
        UserError: The price file cannot be read or is not one.
    """
    prices = _read_price_file(Path(table)) if table else None
    if spec == RULES:
        return FREE
    provider, _, model = spec.partition(":")
    model = model.removeprefix("models/")
    if prices is None:
        return _find_list_price(provider, model)
    for name in (spec, f"{provider}:{model}"):
        if name in prices:
            return prices[name]
    dated = [name for name in prices if f"{provider}:{model}".startswith(f"{name}-") and _is_dated(model, name)]
    return prices[max(dated, key=len)] if dated else None


def price_of_members(members: Sequence[str], table: str | Path | None = None) -> Price | None:
    """Return the price of one or several judges; None if any of their prices is unknown."""
    each = {spec: price_of(spec, table) for spec in members}
    prices = {spec: price for spec, price in each.items() if price is not None}
    if len(prices) < len(each):
        return None
    if len(prices) == 1:
        return next(iter(prices.values()))
    dearest = {name: max(getattr(price, name) for price in prices.values()) for name in ("input", "output")}
    return PanelPrice(**dearest, members=prices)


def parse_price(text: str) -> Price:
    """Parse `INPUT,OUTPUT` or `INPUT,OUTPUT,CACHED`, in dollars per million tokens."""
    parts = text.split(",")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (2, 3) or any(not 0 <= number < 1e9 for number in numbers):
        raise UserError(f"a price is INPUT,OUTPUT or INPUT,OUTPUT,CACHED in dollars per million tokens, not {text!r}")
    return Price(input=numbers[0], output=numbers[1], cached=numbers[2] if len(numbers) == 3 else None)


def _find_list_price(provider: str, model: str) -> Price | None:
    """Return the standard price of a model today, for short prompts; a preview costs the same as its model."""
    from editloupe.agent.providers.registry import PROVIDERS  # loads LangChain

    listed_as = next((record.listed_as for record in PROVIDERS if record.name == provider), "")
    if not listed_as or not model:
        return None
    from genai_prices import Usage as NoUsage
    from genai_prices import calc_price

    for name in (model, f"{model}-preview"):
        try:
            rates = calc_price(NoUsage(), name, provider_id=listed_as).model_price
        except LookupError:
            continue
        if rates.input_mtok is None or rates.output_mtok is None or _prices_pictures_apart(rates):
            return None
        cached = None if rates.cache_read_mtok is None else _base_rate(rates.cache_read_mtok)
        return Price(input=_base_rate(rates.input_mtok), output=_base_rate(rates.output_mtok), cached=cached)
    return None


def _prices_pictures_apart(rates: Any) -> bool:
    """Return whether tokens of pictures have a price of their own. Usage does not count them apart, so no price holds."""
    return any(value is not None for name, value in vars(rates).items() if "_image_" in name)


def _base_rate(rate: Any) -> float:
    """Return dollars per million tokens; of a rate that rises with the length of the prompt, the lowest."""
    return float(getattr(rate, "base", rate))


def _is_dated(model: str, name: str) -> bool:
    """Return whether the rest of a model's name is a date, a preview mark or both: the same model at the same price."""
    rest = model[len(name.partition(":")[2]) + 1 :]
    return all(part.isdigit() or part in ("preview", "latest", "exp") for part in rest.split("-"))


@cache
def _read_price_file(path: Path) -> Mapping[str, Price]:
    data = read_yaml(path)
    entries = data.get("prices") if isinstance(data, dict) else None
    if not isinstance(entries, dict) or not all(isinstance(name, str) for name in entries):
        raise UserError(f'{path} is not a price file: it needs "prices:" with input and output by model')
    prices = {}
    for name, entry in entries.items():
        try:
            prices[name] = Price.model_validate(entry)
        except ValidationError as error:
            raise UserError(f"{path}: the price of {name}: {describe_validation_error(error)}") from None
    return prices
