"""Count and show the progress of a batch, and estimate its tokens and cost before it begins."""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from editloupe._util.text import format_duration, number_of, one_line
from editloupe.agent.spec_names import RULES
from editloupe.agent.transport.errors import is_rate_limited
from editloupe.agent.transport.rate_limits import format_pause
from editloupe.agent.transport.usage import CHARACTERS_PER_TOKEN
from editloupe.evals.batch.planner import Job
from editloupe.evals.batch.traffic import TrafficControl
from editloupe.evals.runs.prices import Price
from editloupe.evals.runs.store import Run
from editloupe.evals.runs.summary import mean_usage
from editloupe.types import Edit, Judgement, Unjudged, Usage

LINE_EVERY = 10.0
"""Seconds between two lines if the output is not a terminal."""
REQUESTS = {"tools": 3.0, "oracle": 2.0, "plain": 1.0}
"""Assumed requests per unit; with tools: a look at the differences, a closer look, the answer."""
TOKENS_A_PICTURE = 1100
"""Assumed; providers count about 770 to 1300 per megapixel."""
TOKENS_A_REPLY = 400
AssumeUsage = Callable[[Edit, str, Mapping[str, Any]], Mapping[str, float]]
"""Estimates the tokens of a unit from the edit, the criterion and the judge's description."""


@dataclass
class Tally:
    """Counts of one session."""

    total: int = 0
    """Units of the manifest."""
    held: int = 0
    """Units that need not be asked: the run had them before, or another edit shares them."""
    shared: int = 0
    """How many of these this session judged for another edit."""
    judged: int = 0
    unjudged: Counter[str] = field(default_factory=Counter)
    """By reason."""
    not_replaced: Counter[str] = field(default_factory=Counter)
    """By reason, units that were judged again and ended unjudged, so that their older verdict was kept."""
    limited: int = 0
    """Units without a verdict because the server limits requests (429)."""
    retried: int = 0
    """Requests that had to be sent again."""
    started: float = field(default_factory=time.monotonic)
    under_way: int = 0
    """Edits that are being judged."""
    stopping: bool = False
    """Whether the user asked to stop: edits under way are finished, and no more are begun."""

    @property
    def done(self) -> int:
        """Units finished in this session."""
        return self.judged + self.unjudged.total() + self.not_replaced.total()

    @property
    def seconds(self) -> float:
        """Seconds since the session began."""
        return time.monotonic() - self.started

    @property
    def missing(self) -> int:
        """Units still to do."""
        return self.total - self.held - self.done

    @property
    def seconds_left(self) -> float | None:
        """Estimated from the rate so far; None before the first unit."""
        return self.missing * self.seconds / self.done if self.done and self.missing > 0 else None

    def add(self, judgement: Judgement, not_replaced: Collection[str] = ()) -> None:
        """Count a judgement that was written.

        Args:
            judgement: The judgement.
            not_replaced: Its criteria whose older verdict was kept.
        """
        for outcome in judgement.verdicts:
            if isinstance(outcome, Unjudged):
                counts = self.not_replaced if outcome.criterion in not_replaced else self.unjudged
                counts[outcome.reason.value] += 1
                self.limited += is_rate_limited(outcome.detail)
            else:
                self.judged += 1
        self.retried += sum(step.attempts - 1 for trace in judgement.traces for step in trace.steps)


class Progress:
    """Shows a tally: live on a terminal, elsewhere as plain lines. Use it as a context manager."""

    def __init__(self, tally: Tally, traffic: TrafficControl | None, file: TextIO | None = None) -> None:
        self._tally, self._traffic = tally, traffic
        self._console = Console(file=file or sys.stderr, highlight=False)
        self._live: Live | None = None
        self._last_line = time.monotonic()
        self._first = True

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live = Live(console=self._console, get_renderable=self._table, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def tick(self) -> None:
        """Print a line if one is due; the live view refreshes by itself."""
        now = time.monotonic()
        if self._live is None and now - self._last_line >= LINE_EVERY:
            self._last_line = now
            self.say(self.line())

    def say(self, sentence: str) -> None:
        """Print a sentence above the live view."""
        self._console.print(Text(f"editloupe: {one_line(sentence)}"), soft_wrap=True)

    def announce_pause(self, seconds: float) -> None:
        """Print that requests pause; the live view shows it by itself."""
        if self._live is None:
            self.say(format_pause(seconds))

    def acknowledge_stop(self) -> None:
        """Print that a request to stop was received, and what happens next."""
        self._tally.stopping = True
        self.say(self._finishing())
        if self._live:
            self._live.refresh()

    def _finishing(self) -> str:
        return f"finishing {number_of(self._tally.under_way, 'edit')}; again to leave at once"

    def line(self) -> str:
        """Return the state in one line."""
        tally = self._tally
        parts = [self._finishing()] if tally.stopping else []
        parts += self._pause()
        parts += [f"{tally.held + tally.done}/{tally.total} units", f"{tally.judged} judged"]
        if tally.unjudged:
            parts.append(f"{tally.unjudged.total()} unjudged ({_by_kind(tally.unjudged)})")
        if tally.not_replaced:
            parts.append(f"{tally.not_replaced.total()} not replaced ({_by_kind(tally.not_replaced)})")
        parts += [self._rate(), *self._money()]
        if (left := tally.seconds_left) is not None:
            parts.append(f"{format_duration(left)} left")
        if errors := self._errors():
            parts.append(errors)
        return " · ".join(parts)

    def _table(self) -> Table:
        tally = self._tally
        done = tally.held + tally.done
        table = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=max(1, tally.total), completed=done, width=40)
        if tally.stopping:
            table.add_row("stopping", Text(self._finishing(), style="bold yellow"), "")
        for sentence in self._pause():
            table.add_row("waiting", Text(sentence, style="yellow"), "")
        table.add_row("judging", bar, f"{done}/{tally.total}")
        counts = Text.assemble((f"{tally.judged} judged", "green"), "  ")
        if tally.unjudged:
            counts.append(f"{tally.unjudged.total()} unjudged  ", "red")
        if tally.not_replaced:
            counts.append(f"{tally.not_replaced.total()} not replaced", "red")
        left = tally.seconds_left
        table.add_row("", counts, f"{format_duration(left)} left" if left is not None else "")
        table.add_row("", " · ".join([self._rate(), *self._money()]), "")
        if errors := " · ".join(filter(None, (_by_kind(tally.unjudged + tally.not_replaced), self._errors()))):
            table.add_row("", Text(errors, style="yellow"), "")
        return table

    def _rate(self) -> str:
        seconds = self._tally.seconds
        return f"{self._tally.done / seconds * 60:.1f} units per minute" if seconds > 0 else ""

    def _money(self) -> list[str]:
        if self._traffic is None or not self._traffic.spending.usage.requests:
            return []
        spending = self._traffic.spending
        tokens = f"{spending.usage.input_tokens + spending.usage.output_tokens:,} tokens".replace(",", " ")
        return [tokens, "cost unknown" if spending.cost is None else f"${spending.cost:.4f}"]

    def _pause(self) -> list[str]:
        seconds = self._traffic.paused_for if self._traffic else 0.0
        return [format_pause(math.ceil(seconds))] if seconds else []

    def _errors(self) -> str:
        refusals = self._traffic.refusals if self._traffic else 0
        parts = [f"{refusals} rate-limit replies" if refusals else ""]
        parts.append(f"{number_of(self._tally.retried, 'request')} sent again" if self._tally.retried else "")
        if self._traffic and refusals and self._traffic.allowed < self._traffic.limits.concurrency:
            parts.append(f"{int(self._traffic.allowed)} at a time")
        return " · ".join(filter(None, parts))


def _by_kind(unjudged: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in unjudged.most_common())


@dataclass(frozen=True)
class Forecast:
    """Estimated tokens and cost of the missing units."""

    units: int
    usage: Usage
    cost: float | None
    measured: int
    """Judged units that the estimate is based on; 0 if it is assumed."""


def assume_usage(edit: Edit, criterion: str, description: Mapping[str, Any]) -> dict[str, float]:
    """Return assumed tokens of a unit. Every request repeats the conversation so far, and every judge of a panel is asked."""
    judges = [member["spec"] for member in description.get("members") or (description,)]
    asked = sum(spec != RULES for spec in judges)
    mode = str(description["mode"])
    requests = REQUESTS[mode]
    texts = [text for name, text in description["rubrics"].items() if name.split("/")[0] == criterion]
    if any(text["answer"]["kind"] == "measured" for text in texts):
        return {}
    text = len(json.dumps(texts[:1])) / CHARACTERS_PER_TOKEN
    pictures = 2.0 if mode != "oracle" else 3.0
    first = text + pictures * TOKENS_A_PICTURE
    added = 2 * TOKENS_A_PICTURE + TOKENS_A_REPLY
    return {
        "requests": asked * requests,
        "input_tokens": asked * (requests * first + requests * (requests - 1) / 2 * added),
        "output_tokens": asked * requests * TOKENS_A_REPLY,
    }


def build_estimator(
    run: Run, description: Mapping[str, Any], assume: AssumeUsage = assume_usage
) -> Callable[[Job], Usage]:
    """Return a function that estimates a job's tokens: by means of the run's units of the same judge, else by assumption."""
    means = mean_usage(run, str(description["spec"]), str(description["mode"]))

    def estimate(job: Job) -> Usage:
        needed: defaultdict[str, float] = defaultdict(float)
        for criterion in job.criteria:
            each = means[criterion][0] if criterion in means else assume(job.edit, criterion, description)
            for name, value in each.items():
                needed[name] += value
        return Usage(**{name: round(value) for name, value in needed.items()})

    return estimate


def forecast_batch(
    run: Run,
    jobs: Iterable[Job],
    description: Mapping[str, Any],
    price: Price | None,
    assume: AssumeUsage = assume_usage,
) -> Forecast:
    """Estimate jobs: by means of the run's units of the same judge, else by assumption."""
    means = mean_usage(run, str(description["spec"]), str(description["mode"]))
    estimate = build_estimator(run, description, assume)
    units: Counter[str] = Counter()
    total = Usage()
    for job in jobs:
        units.update(job.criteria)
        total += estimate(job)
    measured = sum(count for name, (_, count) in means.items() if name in units)
    return Forecast(units.total(), total, price.spread_cost(total) if price else None, measured)
