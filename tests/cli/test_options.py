"""A record of annotated fields in a command's signature becomes options on its command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from editloupe.cli.options import Default, Only, Without, expand_options


@dataclass(frozen=True)
class Paint:
    color: Annotated[str, typer.Option(help="Which color.")] = "red"
    coats: Annotated[int, typer.Option(min=1, help="How many coats.")] = 2


@dataclass(frozen=True)
class House:
    rooms: Annotated[list[str] | None, typer.Option("--room", help="A room.")] = None
    paint: Paint = Paint()
    secret: str = "no option"


def run(command: Any, *arguments: str) -> Any:
    app = typer.Typer()
    app.command()(expand_options(command))
    return CliRunner().invoke(app, list(arguments))


def test_fields_are_options_and_arrive_as_the_record() -> None:
    def build(name: str, house: House, *, loud: bool = False) -> None:
        print(name, house, loud)

    done = run(build, "villa", "--room", "hall", "--room", "attic", "--coats", "3", "--loud")
    expected = House(rooms=["hall", "attic"], paint=Paint(coats=3))
    assert done.output.strip() == f"villa {expected} True"
    assert run(build, "villa").output.strip() == f"villa {House()} False"


def test_a_field_without_an_option_is_none() -> None:
    def build(house: House) -> None:
        print(house)

    assert "secret" not in run(build, "--help").output
    assert run(build, "--secret", "x").exit_code == 2


def test_a_bad_value_is_refused_by_the_name_of_the_option() -> None:
    def build(house: House) -> None:
        print(house)

    done = run(build, "--coats", "0")
    assert done.exit_code == 2
    assert "--coats" in done.output


@pytest.mark.parametrize(
    ("kind", "offered"),
    [
        (Annotated[House, Only("color")], {"color"}),
        (Annotated[House, Without("color")], {"rooms", "coats"}),
        (Annotated[House, Only("rooms", "color"), Without("color")], {"rooms"}),
    ],
)
def test_a_command_may_offer_a_part(kind: Any, offered: set[str]) -> None:
    def build(house: House) -> House:
        return house

    build.__annotations__["house"] = kind
    flat = expand_options(build)
    assert set(flat.__annotations__) == offered
    assert flat(**dict.fromkeys(offered & {"coats"}, 9)).paint == Paint(coats=9 if "coats" in offered else 2)


def test_a_command_may_have_another_default() -> None:
    def build(house: Annotated[House, Default(coats=7)]) -> None:
        print(house.paint.coats)

    assert run(build).output.strip() == "7"
    assert run(build, "--coats", "1").output.strip() == "1"


def test_a_field_that_is_not_offered_leaves_its_name_to_the_command() -> None:
    def build(house: Annotated[House, Without("color")], color: int = 5) -> None:
        print(house.paint.color, color)

    assert run(build, "--color", "6").output.strip() == "red 6"


def test_two_options_of_one_name_are_a_mistake_of_ours() -> None:
    def build(house: House, color: str = "") -> None: ...

    with pytest.raises(ValueError, match="duplicate parameter name"):
        expand_options(build)
