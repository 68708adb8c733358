"""Turn corrected scores, calibration, drift and the alternative annotator test into blocks.

Corrected scores are also available as a table, and are added to the means in the JSON form of a report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from editloupe._util.text import format_command, number_of
from editloupe.evals.report.block_types import Block, Drawing, Heading, Paragraph, Points
from editloupe.evals.report.table_formats import NONE, format_or_dash, format_p_value
from editloupe.evals.stats.trust.corrected_scores import Corrected, CorrectedScore, CorrectedScores, CorrectedSlice
from editloupe.evals.stats.trust.yes_no import MIN_LABELS
from editloupe.judge.calibration import CONFIDENCE_KINDS, Calibration
from editloupe.rubrics.tables import Cell, PrintedTable

if TYPE_CHECKING:
    from editloupe.evals.stats.trust.drift import Drift
    from editloupe.evals.stats.trust.replace_annotators import ReplacementTest
    from editloupe.evals.stats.trust.trust_summary import JudgeAgreement, TrustSummary

CORRECTED = "Scores corrected by people"
OVERALL, FINAL = "overall", "score"


def corrected_blocks(scores: CorrectedScores, titles: Mapping[str, str], level: int = 2) -> Iterator[Block]:
    """Yield the blocks of corrected scores: how labels were drawn, what they gained, and every mean with its correction."""
    yield Heading(CORRECTED, level)
    yield Paragraph(f"What people would have said of all edits, from their labels ({scores.origin}). {scores.drawn}")
    yield Points((*_describe_gain(scores), *scores.notes))
    several = any(part.by_type for part in scores.parts.values())
    yield _build_table(scores, titles, {label: part.overall for label, part in scores.parts.items()}, "model")
    for label, part in scores.parts.items() if several else ():
        yield Heading(f"{label}, by type", level + 1)
        yield (
            _build_table(scores, titles, part.by_type, "type")
            if _has_corrected_type(part)
            else _explain_missing_types(part)
        )
    yield from _difference_blocks(scores, level + 1)
    yield from _yes_no_blocks(scores, titles, level + 1)


def _has_corrected_type(part: CorrectedSlice) -> bool:
    return any(
        corrected.corrected is not None
        for score in part.by_type.values()
        for corrected in (score, *score.criteria.values())
    )


def _explain_missing_types(part: CorrectedSlice) -> Paragraph:
    """Explain once why no type has its own corrected score."""
    start = "No type has a corrected score of its own"
    few = [f"{name} {score.labels}" for name, score in part.by_type.items() if score.labels < MIN_LABELS]
    if len(few) == len(part.by_type):
        return Paragraph(f"{start}: at least {MIN_LABELS} labels are needed for each ({', '.join(few)}).")
    others = [
        f" {name}: {score.why}." for name, score in part.by_type.items() if score.labels >= MIN_LABELS and score.why
    ]
    fewer = f" With fewer than {MIN_LABELS} labels: {', '.join(few)}." if few else ""
    return Paragraph(f"{start}.{''.join(others)}{fewer}")


def _describe_gain(scores: CorrectedScores) -> Iterator[str]:
    for label, part in scores.parts.items():
        score = part.overall
        if score.corrected is None or score.judge is None:
            yield f"{label}: no corrected score ({score.why})."
            continue
        gained = (
            f"{number_of(score.labels, 'label')} and the judge are as good as {score.worth} human labels alone would be"
            if score.weight
            else f"{number_of(score.labels, 'label')} alone, to which the judge adds nothing"
        )
        yield f"{label}: the judge says {score.judge:.1f}, people would say {score.format()}: {gained}."


def _build_table(
    scores: CorrectedScores, titles: Mapping[str, str], lines: Mapping[str, CorrectedScore], head: str
) -> PrintedTable:
    rows, whys = [], []
    for name, score in lines.items():
        means: dict[str, Corrected] = {FINAL: score}
        if len(score.criteria) > 1:
            means |= {titles.get(criterion, criterion): mean for criterion, mean in score.criteria.items()}
        for what, mean in means.items():
            judge = format_or_dash(mean.judge)
            alone = Corrected(judge=None, corrected=mean.alone, low=mean.alone_low, high=mean.alone_high).format()
            worth = format_or_dash(mean.worth, "")
            rows.append((name, what, judge, mean.format(), alone, str(mean.labels), worth))
        if score.why:
            whys.append(f"{name}: {score.why}.")
    columns = (head, "of", "judge", "corrected", "labels alone", "labels", "as good as")
    note = f"{scores.level * 100:g} % intervals. As good as: labels alone that would give so narrow an interval."
    return PrintedTable("", columns, tuple(rows), (" ".join((note, *whys)),))


def _difference_blocks(scores: CorrectedScores, level: int) -> Iterator[Block]:
    if not scores.differences:
        return
    yield Heading("Differences, corrected", level)
    rows, whys = [], []
    for difference in scores.differences:
        judge = format_or_dash(difference.judge, "+.1f")
        corrected = Corrected(
            judge=None, corrected=difference.corrected, low=difference.low, high=difference.high
        ).format()
        rows.append((f"{difference.a} − {difference.b}", judge, corrected, *map(str, difference.labels)))
        whys += [f"{difference.a} − {difference.b}: {difference.why}."] if difference.why else []
    yield PrintedTable("", ("overall", "judge", "corrected", "labels", "labels"), tuple(rows), (" ".join(whys),))


def _yes_no_blocks(scores: CorrectedScores, titles: Mapping[str, str], level: int) -> Iterator[Block]:
    rows, whys = [], []
    for label, part in scores.parts.items():
        for criterion, share in part.yes_no.items():
            rates = [_format_percent(rate) for rate in (share.sensitivity, share.specificity)]
            corrected = Corrected(judge=None, corrected=share.corrected, low=share.low, high=share.high).format()
            title = titles.get(criterion, criterion)
            rows.append((f"{label}, {title}", f"{share.judge:.1f}", corrected, *rates, str(share.labels)))
            whys += [f"{label}, {title}: {share.why}."] if share.why else []
    if rows:
        yield Heading("Share of yes, by sensitivity and specificity", level)
        columns = ("criterion", "judge", "corrected", "sensitivity", "specificity", "labels")
        yield PrintedTable("", columns, tuple(rows), (" ".join(whys),))


def _format_percent(share: float | None) -> str:
    return NONE if share is None else f"{share * 100:.0f} %"


def corrected_table(scores: CorrectedScores, titles: Mapping[str, str]) -> PrintedTable:
    """Return all corrected means as one table with a row per model, type and score."""
    rows: list[tuple[Cell, ...]] = []
    for label, part in scores.parts.items():
        for kind, score in ((OVERALL, part.overall), *part.by_type.items()):
            rows.append((label, kind, FINAL, *_cells(score)))
            named = score.criteria.items() if len(score.criteria) > 1 else ()
            rows += [(label, kind, titles.get(name, name), *_cells(mean)) for name, mean in named]
    columns = ("model", "type", "of", "judge", "corrected", "low", "high", "labels", "as good as", "edits")
    return PrintedTable(CORRECTED, columns, tuple(rows), (scores.drawn,))


def _cells(mean: Corrected) -> tuple[Cell, ...]:
    return mean.judge, mean.corrected, mean.low, mean.high, mean.labels, mean.worth, mean.edits


def add_corrected_means(data: dict[str, Any], scores: CorrectedScores) -> None:
    """Add `corrected` with its interval and label count to each mean of a report's JSON."""
    for label, part in scores.parts.items():
        _add_to_slice(data["parts"][label], part)
    if len(scores.parts) == 1:
        (only,) = scores.parts.values()
        _add_to_slice(data, only)
    for label, score in data.get("by", {}).get("model", {}).items():
        if label in scores.parts:
            _add_to_score(score, scores.parts[label].overall)


def _add_to_slice(data: dict[str, Any], part: CorrectedSlice) -> None:
    _add_to_score(data["overall"], part.overall)
    for kind, score in data["by_type"].items():
        if kind in part.by_type:
            _add_to_score(score, part.by_type[kind])


def _add_to_score(data: dict[str, Any], score: CorrectedScore) -> None:
    data["corrected"] = score.model_dump(mode="json", exclude={"criteria"})
    for name, criterion_data in data["criteria"].items():
        if name in score.criteria:
            criterion_data["corrected"] = score.criteria[name].model_dump(mode="json")


def calibration_blocks(calibration: Calibration, titles: Mapping[str, str]) -> Iterator[Block]:
    """Yield the blocks on which verdicts may be kept, and why."""
    yield Heading(f"What may be kept of {calibration.judge} · {calibration.protocol} · {calibration.mode} mode", 1)
    promise = (
        f"Of what is kept people agree with at least {calibration.agreement * 100:g} %, for each criterion with an error of "
        f"{calibration.error * 100:g} %"
        if calibration.keeps_something
        else f"Nothing may be kept: the labels do not show that people agree with {calibration.agreement * 100:g} % of it"
    )
    yield Paragraph(f"{promise}; confidence is {CONFIDENCE_KINDS[calibration.confidence]}.", "answer")
    rows, whys = [], list(calibration.notes)
    if calibration.after:
        whys.insert(
            0,
            f"This is stage {len(calibration.after) + 1} of a cascade: only what the stages before it leave over counts.",
        )
    for criterion, criterion_calibration in calibration.criteria.items():
        title = titles.get(criterion, criterion)
        best = next((step for step in reversed(criterion_calibration.tested) if step.passed), None)
        if best is None:
            rows.append((title, "nothing", "0 %", str(criterion_calibration.labels), "–", "–"))
            whys.append(f"{title}: nothing may be kept; {criterion_calibration.why}.")
            continue
        agreed = f"{best.agreed} of {best.labels}"
        rows.append(
            (
                title,
                f"{best.threshold:.3g}",
                f"{criterion_calibration.kept * 100:.0f} %",
                str(criterion_calibration.labels),
                agreed,
                f"{best.lower * 100:.1f} %",
            )
        )
    columns = ("criterion", "kept from", "of the run", "labels", "people agree", "at least")
    yield PrintedTable("", columns, tuple(rows), ("At least: the Clopper–Pearson lower bound.",))
    if whys:
        yield Points(tuple(whys))


def drift_blocks(drift: Drift, titles: Mapping[str, str]) -> Iterator[Block]:
    """Yield the blocks on whether a judge has changed."""
    yield Heading(f"{drift.anchor}, judged again", 1)
    yield Paragraph(drift.sentence, "answer")
    yield Points((f"Then: {drift.before}.", f"Again: {drift.after}.", *drift.notes))
    rows = []
    for criterion, change in drift.criteria.items():
        shift = "–" if change.shift is None else f"{change.shift:+.1f} [{change.low:+.1f}, {change.high:+.1f}]"
        rows.append(
            (
                titles.get(criterion, criterion),
                change.answer,
                _format_percent(change.exact),
                _format_percent(change.exact_of_repeats),
                format_or_dash(change.kappa, ".2f"),
                shift,
                str(change.edits),
            )
        )
    columns = ("criterion", "answer", "same label", "its own repeats", "Cohen κ", "shift of the mean", "edits")
    note = f"Interval of {(1 - 2 * drift.error) * 100:g} %; same if it is within ±{drift.margin:g} points of 100."
    yield PrintedTable("", columns, tuple(rows), (note,))


def replacement_blocks(
    replacements: Mapping[str, ReplacementTest], titles: Mapping[str, str], epsilon: float
) -> Iterator[Block]:
    """Yield the blocks on whether the judge may replace annotators, per criterion."""
    yield Heading("May the judge replace annotators?")
    yield Paragraph(
        f"Alternative annotator test (Calderon and others 2025), ε = {epsilon:g}: yes if the judge is shown to be at most "
        "ε worse than at least half of the annotators."
    )
    for criterion, replacement in replacements.items():
        title = titles.get(criterion, criterion)
        if replacement.may_replace is None or replacement.winning_rate is None or replacement.advantage is None:
            yield Points((f"{title}: not tested, {replacement.why}.",))
            continue
        rows = [
            (
                name,
                _format_percent(comparison.judge_wins),
                _format_percent(comparison.annotator_wins),
                format_p_value(comparison.p),
                "yes" if comparison.rejected else "no",
                str(comparison.edits),
            )
            for name, comparison in replacement.annotators.items()
        ]
        answer = (
            f"{'Yes' if replacement.may_replace else 'No'}: winning rate {replacement.winning_rate:.2f}, "
            f"mean advantage {replacement.advantage:.2f}."
        )
        note = f"{answer} {replacement.why or ''}".strip()
        yield PrintedTable(
            "", (title, "judge as close", "annotator as close", "p", "passed", "edits"), tuple(rows), (note,)
        )


TRUST_FIGURE = "trust"
"""Name of the figure of a trust page."""


def trust_blocks(
    summary: TrustSummary, titles: Mapping[str, str], folder: str, configuration: str = ""
) -> Iterator[Block]:
    """Yield the blocks of a trust page: five sentences, a figure, and the numbers behind both.

    Args:
        summary: How far the scores can be trusted.
        titles: Criteria to their titles.
        folder: The run's folder, for commands.
        configuration: The configuration that commands name, if the run has several.
    """
    from editloupe.evals.report.report_blocks import explain_missing_intervals

    yield Heading(f"How far can you trust {summary.run}? {summary.judge} · {summary.protocol}", 1)
    first, *others = describe_trust(summary, titles, folder, configuration)
    yield Paragraph(first, "answer")
    yield Points(tuple(others))
    if not summary.agreement:
        return
    yield Drawing(TRUST_FIGURE, "Left: agreement with people. Right: the judge's mean, and what people would give.")
    rows = []
    for own in summary.agreement:
        ceiling = "–" if own.ceiling is None else own.ceiling.format()
        rows.append((titles.get(own.criterion, own.criterion), own.spearman.format(), ceiling, str(own.n)))
    headings = ("agreement", "Spearman ρ", "one annotator and the others", "edits")
    shown = [measure for own in summary.agreement for measure in (own.spearman, own.ceiling) if measure is not None]
    yield PrintedTable("", headings, tuple(rows), explain_missing_intervals(shown))
    means, whys = [], []
    for model in summary.models:
        mean = model.mean
        halve = format_or_dash(model.labels_to_halve, "")
        means.append(
            (model.name, format_or_dash(mean.judge), mean.format(), _format_bias(mean), str(mean.labels), halve)
        )
        whys += [f"{model.name}: {mean.why}."] if mean.why else []
    columns = ("score", "judge", "corrected", "bias", "labels", "labels for half the width")
    yield PrintedTable("", columns, tuple(means), (" ".join(whys),) if whys else ())
    yield Points(tuple(filter(None, (summary.drawn, *summary.notes))))


def describe_trust(
    summary: TrustSummary, titles: Mapping[str, str], folder: str, configuration: str = ""
) -> tuple[str, ...]:
    """Return the five sentences: agreement, bias, labels to halve the interval, what goes wrong most, what to do next."""
    options = ("--configuration", configuration) if configuration else ()
    return (
        _describe_agreement(summary, titles),
        _describe_bias(summary),
        _describe_halving(summary),
        _describe_mistakes(summary, titles),
        _describe_advice(summary, (folder, *options)),
    )


def _describe_agreement(summary: TrustSummary, titles: Mapping[str, str]) -> str:
    from editloupe.evals.stats.trust.trust_summary import WEAK

    known = [own for own in summary.agreement if own.spearman.value is not None]
    if not summary.agreement:
        return "It is not known how far the judge agrees with people: no judged edit has a label."
    if not known:
        return f"Agreement is not known: {summary.agreement[0].spearman.why or 'the scores do not vary'}."
    ordered = sorted(known, key=lambda own: own.spearman.value or 0.0)
    chosen = [ordered[-1]] if len(known) == 1 else [ordered[-1], ordered[0]]
    parts = [_describe_criterion(own, titles) for own in chosen]
    without = [own for own in chosen if own.ceiling is None or own.ceiling.value is None]
    names = " and ".join(titles.get(own.criterion, own.criterion) for own in without)
    unknown = (
        f" How far people agree with each other on {names} is not known, because no edit has two people's labels for it."
        if without
        else ""
    )
    if len(known) == 1:
        hardly = "hardly " if (known[0].spearman.value or 0.0) <= WEAK else ""
        return f"The judge's scores {hardly}follow people's on {parts[0]}.{unknown}"
    return f"The judge follows people best on {parts[0]}, and least on {parts[1]}.{unknown}"


def _describe_criterion(own: JudgeAgreement, titles: Mapping[str, str]) -> str:
    title = titles.get(own.criterion, own.criterion)
    ceiling = own.ceiling.format() if own.ceiling is not None and own.ceiling.value is not None else None
    reached = f" (one annotator against the others reaches {ceiling})" if ceiling else ""
    return f"{title} with ρ {own.spearman.format()} on {number_of(own.n, 'edit')}{reached}"


def _format_bias(mean: Corrected) -> str:
    if mean.bias is None:
        return "–"
    return f"{mean.bias:+.1f} [{mean.bias_low:+.1f}, {mean.bias_high:+.1f}]"


def _describe_bias(summary: TrustSummary) -> str:
    known = [model for model in summary.models if model.mean.bias is not None]
    if not known:
        why = next((model.mean.why for model in summary.models if model.mean.why), "no labels")
        return f"Its bias and the corrected score are not known: {why}."
    model = max(known, key=lambda own: abs(own.mean.bias or 0.0))
    low, high = model.mean.bias_low or 0.0, model.mean.bias_high or 0.0
    kind = "too kind" if low > 0 else "too strict" if high < 0 else "not shown to be biased"
    name = "" if len(summary.models) == 1 else f" to {model.name}, where its bias is largest of {len(known)} models"
    return (
        f"It is {kind}{name}: it gives {model.mean.judge:.1f} where people would give {model.mean.format()}, a bias of "
        f"{_format_bias(model.mean)} points."
    )


def _describe_halving(summary: TrustSummary) -> str:
    known = [model for model in summary.models if model.mean.corrected is not None]
    if not known:
        return (
            f"A corrected score needs at least {MIN_LABELS} labels per editing model, of edits of 10 source pictures."
        )
    model = max(known, key=lambda own: (own.mean.high or 0.0) - (own.mean.low or 0.0))
    name = "" if len(summary.models) == 1 else f" of {model.name}, the widest,"
    given = number_of(model.mean.labels, "label")
    if model.mean.labels >= model.mean.edits:
        return f"The interval{name} rests on labels of all {model.mean.edits} edits: only more edits would narrow it."
    if model.labels_to_halve is None:
        return (
            f"The interval{name} rests on {given}; labels of all {model.mean.edits} edits would not halve it, so that needs "
            "more edits."
        )
    return f"The interval{name} rests on {given}; about {model.labels_to_halve} in all would halve it."


def _describe_mistakes(summary: TrustSummary, titles: Mapping[str, str]) -> str:
    parts = [
        f"on {group.name} (its scores are {group.mae:.1f} points off, {group.overall:.1f} over all)"
        for group in summary.worst
    ]
    sentence = f"It is farthest from people {' and '.join(parts)}" if parts else ""
    if summary.mistakes:
        worst = max(summary.mistakes, key=lambda mistake: mistake.count / mistake.n)
        criterion = f" on {titles.get(worst.criterion, worst.criterion)}" if len(summary.agreement) > 1 else ""
        mistake = (
            f"ost often wrong{criterion} is “{worst.judge}” where people say “{worst.people}”: {worst.count} of "
            f"{number_of(worst.n, 'edit')}"
        )
        sentence = f"{sentence}; m{mistake}" if sentence else f"M{mistake}"
    return f"{sentence}." if sentence else "What it gets wrong most is not known: there are too few labels to compare."


def _describe_advice(summary: TrustSummary, run: tuple[str, ...]) -> str:
    queue = format_command("editloupe", "label-queue", *run)
    if summary.advice == "label":
        given = sum(model.mean.labels for model in summary.models)
        budget = max(60 * max(len(summary.models), 1) - given, MIN_LABELS)
        if summary.models:
            budget = min(budget, sum(model.mean.edits for model in summary.models) - given)
        if not budget:
            return "Next: judge more edits and label some of them, because every edit has a label."
        return f"Next: label more edits, drawn by `{queue} --budget {budget}`."
    if summary.advice == "another judge":
        return (
            "Next: try another judge or a panel. This one hardly follows people, so its scores add little or nothing to the "
            "labels."
        )
    if summary.advice == "label more":
        more = sum((model.labels_to_halve or model.mean.labels) - model.mean.labels for model in summary.models)
        if not more:
            return "Next: judge more edits and label some of them, because labels alone cannot narrow these intervals enough."
        return f"Next: label {more} more edits for half the width, drawn by `{queue} --budget {more}`."
    if summary.advice == "second annotator":
        return "Next: let a second person label some of the edits, so that it is known how far people agree."
    if summary.advice == "calibrate":
        command = format_command("editloupe", "calibrate", *run, "--out", "trust.yaml")
        return f"Next: use the corrected score, and find the verdicts that may be kept without a person: `{command}`."
    return "Next: report the corrected score with its interval: the labels are enough for it."
