"""The command `editloupe protocols`."""

from __future__ import annotations

from typing import Annotated

import typer
import yaml
from rich.console import Console
from rich.text import Text

from editloupe.agent.prompts import build_system_text
from editloupe.rubrics.case_pictures import OPTIONAL, name_to_role
from editloupe.rubrics.model import OUR_PARTS, Answer, ChecksAnswer, LabelAnswer, MeasuredAnswer, NumberAnswer, Rubric
from editloupe.rubrics.protocol import Protocol
from editloupe.rubrics.registry import get_protocol as find_protocol
from editloupe.rubrics.registry import protocols as all_protocols
from editloupe.rubrics.rewording import list_words
from editloupe.types import UserError


def protocols(
    action: Annotated[str, typer.Argument(help="list, or show NAME.")] = "list",
    name: Annotated[
        str | None,
        typer.Argument(help="The protocol to show. With --as-file also a single rubric: dlebench/visual_consistency."),
    ] = None,
    as_file: Annotated[
        bool,
        typer.Option("--as-file", help="With show: print the texts as a file for --rubric, ready to edit."),
    ] = False,
) -> None:
    """List the protocols, or print the texts and formulas of one.

    Example: editloupe protocols show dlebench --as-file > words.yaml
    """
    console = Console(highlight=False)
    if as_file and action != "show":
        raise UserError("--as-file goes with `editloupe protocols show NAME`")
    if action == "list" and name is None:
        for protocol in all_protocols():
            _print_overview(protocol, console)
        return
    if action != "show" or not name:
        raise UserError("write `editloupe protocols` or `editloupe protocols show NAME`")
    if as_file:
        print(build_rewording_file(name), end="")
        return
    _print_texts(find_protocol(name), console)


def _print_overview(protocol: Protocol, console: Console) -> None:
    console.print(Text.assemble((protocol.name, "bold"), f"  {protocol.source}"))
    modes = ", ".join(f"{mode} (default)" if mode == protocol.default_mode else mode for mode in protocol.modes)
    console.print(Text(f"  modes: {modes}"))
    if protocol.types:
        console.print(Text(f"  types: {', '.join(protocol.types)}"))
    for criterion in protocol.criteria:
        variants = protocol.variants(criterion)
        wordings = ", ".join(rubric.variant for rubric in variants if rubric.variant)
        wordings = f"; wordings: {wordings}" if len(variants) > 1 else ""
        rubric = variants[0]
        facts = (
            f"{describe_answer(rubric.answer)}; pictures: {', '.join(list_inputs(variants))}{wordings}; {rubric.source}"
        )
        console.print(Text(f"  {criterion}: {rubric.title} ({facts})"))


def _print_texts(protocol: Protocol, console: Console) -> None:
    _print_overview(protocol, console)
    if protocol.arithmetic or protocol.formulas:
        console.rule(Text("Arithmetic"), align="left")
        console.print(Text(protocol.arithmetic))
        for name, formula in protocol.formulas.items():
            console.print(Text(f"  {name}: {formula}"))
    for rubric in protocol.rubrics:
        if isinstance(rubric.answer, ChecksAnswer):
            console.print(Text(f"  {rubric.name}: {rubric.answer.formula}"))
    for rubric in protocol.rubrics:
        wording = f" ({rubric.variant})" if rubric.variant else ""
        if rubric.measured:
            console.rule(Text(f"{rubric.title}{wording}, all modes"), align="left")
            console.print(Text(f"{rubric.question.strip()}\nMeasured by {rubric.measured.measure}; no judge is asked."))
            continue
        for mode in rubric.modes:
            console.rule(Text(f"{rubric.title}{wording}, {mode} mode"), align="left")
            if rubric.stage:
                console.print(Text(f"Asked first, {rubric.stage.title}: {rubric.stage.question.strip()}\n"))
            console.print(Text(build_system_text(rubric, mode, (), native=True)))
        if rubric.ours:
            console.print(Text("\nNot in the paper, left out with --set our_notes=off:"))
            console.print(Text("\n".join(f"- {_describe_ours(words)}" for words in rubric.ours)))
    for name, part in protocol.parts.items():
        console.rule(Text(f"{part.title} ({name})"), align="left")
        console.print(
            Text("\n".join((part.setting.strip(), part.question.strip(), *(f"- {note}" for note in part.notes))))
        )


def _describe_ours(words: str) -> str:
    return f"its {words.replace('_', ' ')}" if words in OUR_PARTS else f'"{words.strip()}"'


def build_rewording_file(name: str) -> str:
    """Return the texts of a protocol's rubrics, or of one rubric, as a rewording file. Unedited, it changes nothing."""
    protocol_name, _, rubric_name = name.partition("/")
    protocol = find_protocol(protocol_name)
    rubrics = [
        rubric for rubric in protocol.rubrics if not rubric_name or rubric_name in (rubric.name, rubric.criterion)
    ]
    if not rubrics:
        choices = ", ".join(f"{protocol.name}/{rubric.name}" for rubric in protocol.rubrics)
        raise UserError(f'"{name}" is not a rubric; choose from: {choices}')
    from editloupe.agent.prompts import default_tool_words

    words = rubrics[0].wording
    around = {field: getattr(words, field) for field in type(words).model_fields} | default_tool_words()
    content = {"wording": around, "rewordings": [list_words(rubric, protocol.parts) for rubric in rubrics]}
    return yaml.dump(content, Dumper=_ReadableDumper, allow_unicode=True, sort_keys=False, width=120)


class _ReadableDumper(yaml.SafeDumper):
    """Writes multi-line texts as literal blocks."""


_ReadableDumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def describe_answer(answer: Answer) -> str:
    """Describe a rubric's answer in a few words.

    >>> describe_answer(NumberAnswer(low=1, high=10))
    'a number from 1 to 10'
    """
    if isinstance(answer, LabelAnswer):
        return f"one of {len(answer.labels)} labels"
    if isinstance(answer, NumberAnswer):
        return f"a number from {answer.low} to {answer.high}"
    if isinstance(answer, ChecksAnswer):
        return f"checks: {', '.join(check.key for check in answer.checks)}"
    if isinstance(answer, MeasuredAnswer):
        return f"measured: {answer.measure}"
    return answer.kind.replace("_", "/")


def list_inputs(variants: tuple[Rubric, ...]) -> list[str]:
    """Return the picture roles of a criterion over all its wordings; optional ones are in brackets."""
    names = [name for rubric in variants for mode in rubric.modes.values() for name in mode.images]
    return list(dict.fromkeys(f"({name_to_role(n)})" if n.endswith(OPTIONAL) else name_to_role(n) for n in names))
