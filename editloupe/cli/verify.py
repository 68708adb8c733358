"""The command `editloupe verify`."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from editloupe._util.files import atomic_text_file, write_bytes
from editloupe._util.text import for_json
from editloupe.cli.judge_options import JudgeOptions
from editloupe.cli.options import ASKING, Only, expand_options
from editloupe.cli.output import Out, Quiet, RunFolder, choose_format, deliver, format_option, render_blocks, tell
from editloupe.cli.report import EveryConfiguration, ProtocolName
from editloupe.types import UserError

if TYPE_CHECKING:
    from editloupe.agent.asker import Asker
    from editloupe.evals.runs.claim_store import ClaimStore
    from editloupe.evals.runs.store import Run
    from editloupe.evals.verify.results import Verification

FORMATS = ("text", "md", "json")
WIDTH = 140
"""Columns of the text."""
EVERY = 20
"""Verdicts between two lines of progress on a terminal."""


@expand_options
def verify(
    run: RunFolder,
    *,
    format: Annotated[str | None, format_option(FORMATS)] = None,
    out: Out = None,
    crops: Annotated[
        Path | None, typer.Option(help="Folder for a picture of the evidence of every contradicted claim.")
    ] = None,
    extractor: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="A model that is also asked what the judge claims. Default: patterns only.",
            rich_help_panel=ASKING,
        ),
    ] = None,
    model: Annotated[JudgeOptions, Only("base_url", "set_values", "max_output_tokens", "timeout")],
    max_cost: Annotated[
        float | None,
        typer.Option(min=0, help="Limit for all requests to the extractor, in US dollars.", rich_help_panel=ASKING),
    ] = None,
    price: Annotated[
        str | None,
        typer.Option(
            help="Price of the extractor: INPUT,OUTPUT[,CACHED] in US dollars per million tokens.",
            rich_help_panel=ASKING,
        ),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Edits that are checked at a time. Default: one per processor, at most 4.")
    ] = None,
    quiet: Quiet = False,
    protocol: ProtocolName = None,
    configuration: EveryConfiguration = None,
) -> int:
    """Check what the judge said against the pixels: its claims are supported, contradicted or not checkable.

    Labels are not changed. Results are stored in the run's folder; run the same command again to continue, and to check what
    is new. `editloupe traces RUN --where 'contradicted > 0' --order confident` lists contradicted verdicts.

    Example: editloupe verify runs/gpt --crops evidence
    """
    kind = choose_format(format, out, FORMATS)
    from editloupe.agent.transport.rate_limits import OverBudget
    from editloupe.evals.runs.claim_store import ClaimStore
    from editloupe.evals.runs.store import Run
    from editloupe.evals.verify.results import ClaimTally, describe_verification
    from editloupe.evals.verify.verify_run import Verifier
    from editloupe.judge.claims.claim_model import ModelExtractor

    with ExitStack() as stack:
        opened = stack.enter_context(Run.open(run))
        questions, short_name = _choose_questions(opened, protocol, configuration)
        if extractor is None and (max_cost is not None or price is not None):
            raise UserError("--max-cost and --price are about the model of --extractor")
        store = stack.enter_context(ClaimStore(run, write=True))
        asker = _open_extractor(extractor, model, max_cost, price, store, concurrency) if extractor else None
        verifier = Verifier(opened, store, extractor=ModelExtractor(asker) if asker else None, concurrency=concurrency)
        tally, spool = ClaimTally(), stack.enter_context(TemporaryFile("w+", encoding="utf-8"))
        progress = _Progress(opened, questions, quiet)
        stopped = ""
        try:
            for checked in verifier.verify(questions):
                record, unit = None, checked.unit
                if checked.counts is not None:
                    record = store.find_record(unit.name, unit.asked, unit.repeat, unit.finished_at)
                tally.add(checked, record)
                if record is not None and kind == "json":
                    spool.write(for_json(_describe(unit, record)) + "\n")
                if record is not None and crops is not None and checked.counts and checked.counts.contradicted:
                    _write_crops(verifier.cut_evidence(checked, record), crops)
                progress.tick()
        except OverBudget as error:
            stopped = f"stopped: {error}. Continue with a higher cap, nothing is asked twice"
        finally:
            progress.close()
        result = tally.result(run.resolve().name)
        _print(result, kind, out, spool, str(run), short_name)
        for note in (*opened.damage.sentences(), *((stopped,) if stopped else ())):
            tell(note)
        if kind == "json":
            for sentence in describe_verification(result):
                tell(sentence)
        return 3 if stopped or set(result.not_checked) & _reasons_to_repeat() else 0


def _reasons_to_repeat() -> set[str]:
    from editloupe.evals.verify.verify_run import MISSING, NO_EXTRACTION

    return {MISSING, NO_EXTRACTION}


def _choose_questions(run: Run, protocol: str | None, configuration: str | None) -> tuple[set[str], str]:
    """Return the keys of the questions to verify, and the configuration's short name for commands."""
    from editloupe.evals.runs.configurations import ALL
    from editloupe.evals.stats.scores.run_table import choose_configuration

    if configuration == ALL:
        names, short_name = {own.name for own in run.configurations(protocol)}, ""
        if not names:
            choose_configuration(run, protocol)  # says what is wrong
    else:
        chosen, notes = choose_configuration(run, protocol, configuration)
        names, short_name = {chosen.name}, chosen.short_name if notes or configuration else ""
        for note in notes:
            tell(note)
    with run.reader() as reader:
        return {key for name, key in reader.questions_by_configuration() if name in names}, short_name


def _open_extractor(
    spec: str,
    model: JudgeOptions,
    max_cost: float | None,
    price: str | None,
    store: ClaimStore,
    concurrency: int | None,
) -> Asker:
    from editloupe.agent.asker import Asker
    from editloupe.agent.open_model import open_chat
    from editloupe.agent.spec_names import RULES
    from editloupe.agent.specs import format_specs
    from editloupe.evals.batch.traffic import Limits, Spending, TrafficControl
    from editloupe.evals.runs.claim_store import ClaimReplies
    from editloupe.evals.runs.prices import parse_price, price_of

    options = replace(model, judge=spec)
    if spec == RULES:
        raise UserError(f"--extractor needs a model that reads and writes: name one as {format_specs(' or ')}")
    replies = ClaimReplies(store)
    used, cost = replies.spending()
    limits = Limits(concurrency=concurrency or 4, max_cost=max_cost)
    priced = parse_price(price) if price else price_of(spec)
    traffic = TrafficControl(limits, Spending(limits, priced, used, cost), replies.pay)
    return Asker(open_chat(spec, options.base_url, options.settings(), replies, traffic), spec)


def _describe(unit: Any, record: Mapping[str, Any]) -> dict[str, Any]:
    about = {"edit_id": unit.edit_id, "criterion": unit.criterion, "claims": record["claims"]}
    more = {"name": unit.name, "model": unit.model, "judge": unit.judge, "repeat": unit.repeat}
    return {**about, **more, "label": getattr(unit.outcome, "label", None), "unparsed": record["unparsed"]}


def _write_crops(crops: Iterator[tuple[str, Any]], folder: Path) -> None:
    from editloupe.pictures.encode import encode

    for name, pixels in crops:
        write_bytes(folder / f"{name}.jpg", encode(pixels, "jpeg"))


def _print(result: Verification, kind: str, out: Path | None, spool: IO[str], folder: str, short_name: str) -> None:
    from editloupe.evals.verify.results import verification_blocks

    if kind == "json":
        if out is None:
            sys.stdout.writelines(_format_json(result, spool))
        else:
            with atomic_text_file(out) as file:
                file.writelines(_format_json(result, spool))
            tell(f"written to {out}")
        return
    blocks = tuple(verification_blocks(result, folder, short_name))
    deliver(render_blocks(blocks, kind, out, WIDTH), out)


def _format_json(result: Verification, spool: IO[str]) -> Iterator[str]:
    """Yield the JSON form: sums first, then one verdict per line, so that memory does not grow with them."""
    sums = result.model_dump(mode="json")
    first = {name: sums.pop(name) for name in ("claims", "supported", "contradicted", "not_checkable")}
    yield f'{json.dumps(first)[:-1]}, "verdicts": ['
    spool.seek(0)
    for number, line in enumerate(spool):
        yield ("," if number else "") + "\n" + line.rstrip("\n")
    yield f"\n], {for_json(sums)[1:]}\n"


class _Progress:
    """Shows on a terminal how many verdicts are done."""

    def __init__(self, run: Run, questions: set[str], quiet: bool) -> None:
        self._show = not quiet and sys.stderr.isatty()
        self._done, self._total = 0, 0
        if self._show:
            with run.reader() as reader:
                self._total = reader.count_answers()

    def tick(self) -> None:
        """Count a verdict."""
        self._done += 1
        if self._show and self._done % EVERY == 0:
            print(f"\r{self._done} of {self._total} verdicts", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the line."""
        if self._show and self._done >= EVERY:
            print("\r" + " " * min(60, shutil.get_terminal_size().columns - 1) + "\r", end="", file=sys.stderr)
