from pathlib import Path

import pytest

from editloupe.cli.main import run as command
from editloupe.evals.runs.prices import FREE, Price, parse_price, price_of
from editloupe.types import Usage, UserError
from tests.evals.samples import write_manifest


def test_known_models_have_prices_and_unknown_ones_have_none() -> None:
    assert price_of("openai:gpt-5.1") == Price(input=1.25, cached=0.125, output=10)
    assert price_of("openai:my-own-model") is None
    assert price_of("rules") == FREE


def test_a_dated_or_preview_name_costs_what_its_model_costs_but_another_name_does_not() -> None:
    assert price_of("openai:gpt-5.1-2025-11-13") == price_of("openai:gpt-5.1")
    assert price_of("google_genai:gemini-3-pro-preview") == price_of("google_genai:models/gemini-3-pro")
    assert price_of("openai:gpt-5.1-of-mine") is None
    assert price_of("openai:gpt-5-mini") != price_of("openai:gpt-5")


@pytest.mark.parametrize(
    ("spec", "price"),
    [
        ("anthropic:claude-sonnet-4-5", Price(input=3, cached=0.3, output=15)),
        ("azure_openai:gpt-5.1", Price(input=1.25, cached=0.125, output=10)),
        ("bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0", Price(input=3.3, cached=0.33, output=16.5)),
        ("openrouter:anthropic/claude-sonnet-4.5", Price(input=3, cached=0.3, output=15)),
    ],
)
def test_a_provider_has_its_own_list_prices(spec: str, price: Price) -> None:
    assert price_of(spec) == price


@pytest.mark.parametrize(
    "spec",
    [
        "azure_openai:our-deployment",
        "openai:Qwen/Qwen3-VL-8B-Instruct",
        "openrouter:openai/gpt-5.1:nitro",
        "ollama:qwen3-vl",
        "openai:",
        "of-a-plug-in:gpt-5.1",
    ],
)
def test_a_model_of_a_server_of_ones_own_or_of_another_provider_has_no_known_price(spec: str) -> None:
    assert price_of(spec) is None


@pytest.mark.parametrize(
    "spec", ["google_genai:gemini-3-pro-image", "openai:gpt-image-1", "openai:text-embedding-3-small"]
)
def test_a_model_has_no_known_price_if_pictures_cost_more_than_text_or_it_answers_no_text(spec: str) -> None:
    assert price_of(spec) is None


def test_a_dry_run_says_that_a_price_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = write_manifest(tmp_path, 1)
    given = ["batch", str(manifest), "--out", str(tmp_path / "run"), "--judge", "openai:mine", "--dry-run"]
    assert command([*given, "--base-url", "http://127.0.0.1:9"]) == 0
    printed = capsys.readouterr()
    assert "unknown price" in printed.out
    assert "state one with --price" in printed.err


def test_cached_tokens_are_part_of_the_input_and_cost_less() -> None:
    price = Price(input=2, output=10, cached=1)
    assert price.cost(Usage(input_tokens=1_000_000, cached_tokens=500_000, output_tokens=100_000)) == 2.5
    assert Price(input=2, output=10).cost(Usage(input_tokens=10, cached_tokens=10)) == 0.00002


def test_a_price_file_overrides_the_table(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("prices: {'openai:mine': {input: 1, output: 2}}")
    assert price_of("openai:mine", file) == Price(input=1, output=2)


@pytest.mark.parametrize("more", [(), ("--price", "1,2")])
def test_a_price_file_that_is_not_there_is_a_mistake_even_where_no_price_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    manifest = write_manifest(tmp_path, 1)
    given = ["batch", str(manifest), "--out", str(tmp_path / "run"), "--judge", "rules", "--prices", "no.yaml", *more]
    assert command(given) == 2
    assert "no.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1", "a,b", "1,2,3,4", "-1,2", "nan,1"])
def test_a_price_that_cannot_be_read_is_one_sentence(text: str) -> None:
    with pytest.raises(UserError, match="a price is INPUT,OUTPUT"):
        parse_price(text)


def test_a_price_may_name_the_cached_one() -> None:
    assert parse_price("1,2,0.5") == Price(input=1, output=2, cached=0.5)
