"""The command `editloupe passport`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from editloupe._util.text import for_json, one_line
from editloupe.cli.output import choose_format, deliver, format_option, tell
from editloupe.cli.report import ConfigurationName, ProtocolName
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.evals.stats.scores.passport import Passport

FORMATS = ("text", "json")


def passport(
    first: Annotated[Path, typer.Argument(help="A run folder, or the JSON of a report.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
    format: Annotated[str | None, format_option(FORMATS, out=None)] = None,
    protocol: ProtocolName = None,
    configuration: ConfigurationName = None,
) -> int:
    """Say whether the scores of two runs can be compared (exit code 0) or not (1), and why.

    Example: editloupe passport runs/gpt runs/gemini
    """
    kind = choose_format(format, None, FORMATS)
    from editloupe.evals.stats.scores.passport import compare_passports, describe_counts

    own, other = (_read(path, protocol, configuration) for path in (first, second))
    reasons, notes = compare_passports(own, other), describe_counts(own, other)
    if kind == "json":
        record = {
            "comparable": not reasons,
            "reasons": reasons,
            "notes": notes,
            "passports": [part.model_dump(mode="json") for part in (own, other)],
        }
        deliver(for_json(record, 2) + "\n", None)
        return 1 if reasons else 0
    answer = (
        "The two cannot be compared."
        if reasons
        else "The two can be compared: everything that decides a score is equal."
    )
    lines = [
        answer,
        *(f"- {sentence}" for sentence in (*reasons, *notes)),
        f"{first}: {own.line}",
        f"{second}: {other.line}",
    ]
    deliver("".join(f"{one_line(line)}\n" for line in lines), None)
    return 1 if reasons else 0


def _read(path: Path, protocol: str | None, configuration: str | None) -> Passport:
    from editloupe.evals.stats.scores.passport import build_run_passport
    from editloupe.evals.stats.scores.run_table import read_run_table

    if path.is_file():
        return _parse(path)
    table = read_run_table(path, protocol, configuration)
    for sentence in table.notes:
        tell(f"{table.name}: {sentence}")
    return build_run_passport(table)


def _parse(path: Path) -> Passport:
    """Read the passport in the JSON of a report."""
    from pydantic import ValidationError

    from editloupe.evals.stats.scores.passport import Passport

    try:
        report: Any = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is not the JSON of a report ({' '.join(str(error).split())[:120]})") from None
    if isinstance(report, dict) and isinstance(several := report.get("reports"), list) and len(several) != 1:
        raise UserError(f"{path} is a leaderboard of {len(several)} runs; name the runs, or reports of one run each")
    try:
        return Passport.model_validate(report["passport"])
    except (KeyError, TypeError):
        raise UserError(f"{path} has no passport; make it with `editloupe report RUN --format json`") from None
    except ValidationError:
        raise UserError(f"the passport in {path} cannot be read; it is from another version of EditLoupe") from None
