"""Write a methods paragraph for a paper. All its numbers and names are read from the run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from editloupe._util.text import number_of, verb
from editloupe.agent.spec_names import RULES
from editloupe.agent.transport.secrets import redact_url
from editloupe.evals.runs.configurations import IMPORTED
from editloupe.evals.stats.agreement.judge_vs_human import Agreement
from editloupe.evals.stats.intervals import MIN_SOURCES, format_level
from editloupe.evals.stats.scores.run_scores import Scores
from editloupe.evals.stats.scores.run_table import RunTable
from editloupe.rubrics.model import MeasuredAnswer
from editloupe.rubrics.registry import find_protocol

_MODES: Mapping[str, str] = {
    "tools": "tool-driven mode (the judge sees source, edit and instruction and may call visual tools)",
    "oracle": "oracle-guided mode (the judge is shown the annotated target)",
    "plain": "plain mode (one look at source and edit, without tools)",
}


def write_methods(table: RunTable, scores: Scores, level: float, agreement: Agreement | None = None) -> str:
    """Return a paragraph on judge, versions, mode, protocol, settings, counts, unjudged verdicts and intervals."""
    used = dict.fromkeys(kind.configuration for kind in table.unit_columns.counts)
    by_name = {entry["name"]: entry for entry in table.about.get("configurations", ())}
    configurations = [by_name[name] for name in used if name in by_name]
    sentences = [
        _describe_judging(table, configurations),
        _describe_measured(table),
        *_describe_settings(table, configurations, unrecorded=len(configurations) < len(used)),
        _describe_coverage(scores),
        scores.arithmetic,
        _describe_intervals(level),
        *_describe_labels(agreement),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _describe_judging(table: RunTable, configurations: list[Mapping[str, Any]]) -> str:
    judges = " and ".join(_format_judge(judge) for judge in table.judges)
    versions = dict.fromkeys(str(c.get("versions", {}).get("editloupe", "")) for c in configurations)
    version = " and ".join(filter(None, versions))
    modes = " and ".join(_MODES.get(mode, f"{mode} mode") for mode in table.modes)
    protocol = find_protocol(table.protocol)
    paper = f"{protocol.title} ({protocol.source})" if protocol else table.protocol
    criteria = _join_words([table.title_of(name) for name in table.criteria])
    times = f", each {len(table.repeats)} times" if len(table.repeats) > 1 else ""
    if any(configuration.get(IMPORTED) for configuration in configurations):
        return (
            f"Verdicts of {judges} on {number_of(len(table.rows), 'edit')}, for {criteria}{times}, were made elsewhere and "
            f"imported into EditLoupe, by the protocol of {paper}. Their settings are not recorded."
        )
    if all(isinstance(table.answer(name), MeasuredAnswer) for name in table.criteria):
        return (
            f"We measured {number_of(len(table.rows), 'edit')} on {criteria}{times} "
            f"with EditLoupe{f' {version}' if version else ''}, without a judge, by the protocol of {paper}."
        )
    return (
        f"We judged {number_of(len(table.rows), 'edit')} on {criteria}{times} "
        f"with EditLoupe{f' {version}' if version else ''}, "
        f"using {judges} as the judge, by the protocol of {paper}, in {modes}."
    )


def _describe_measured(table: RunTable) -> str:
    titles = [table.title_of(name) for name in table.criteria if isinstance(table.answer(name), MeasuredAnswer)]
    if not titles or len(titles) == len(table.criteria):
        return ""
    return f"{_join_words(titles)} {verb(len(titles), 'was', 'were')} measured from the pictures, without a judge."


def _format_judge(name: str) -> str:
    if name.split(":")[0] == RULES:
        return "`rules`, a rule-based baseline that decides from measured pixels and is not a multimodal model,"
    return f"`{name}`"


def _describe_settings(table: RunTable, configurations: list[Mapping[str, Any]], unrecorded: bool) -> list[str]:
    sentences = []
    for number, configuration in enumerate(configurations, start=1):
        if configuration.get(IMPORTED):
            continue
        settings, profile = configuration.get("settings", {}), configuration.get("profile", {})
        parts = [
            _format_setting(settings, "max_turns", "at most {} replies a case"),
            _format_setting(settings, "max_repairs", "at most {} unreadable replies sent back"),
            _format_setting(settings, "long_side", "pictures sent with a long side of at most {} pixels"),
            _format_temperature(settings, profile),
            _format_setting(settings, "max_output_tokens", "at most {} output tokens a reply"),
            _format_setting(settings, "min_confidence", "verdicts below a confidence of {} left unjudged", unless=0.0),
            f"served from {redact_url(str(configuration['base_url']))}" if configuration.get("base_url") else "",
        ]
        head = f"Settings ({number} of {len(configurations)})" if len(configurations) > 1 else "Settings"
        sentences.append(f"{head}: {', '.join(filter(None, parts))}.")
        # After the first colon or semicolon, a note is advice for the user at the time.
        if notes := [re.split(r"[:;]", str(note))[0] for note in configuration.get("notes", ())]:
            sentences.append(f"Announced when it ran: {'; '.join(notes)}.")
    if unrecorded:
        sentences.append("The settings of some verdicts are not recorded in the run.")
    return sentences


def _format_setting(settings: Mapping[str, Any], name: str, words: str, unless: Any = None) -> str:
    value = settings.get(name)
    return "" if value is None or value == unless else words.format(value)


def _format_temperature(settings: Mapping[str, Any], profile: Mapping[str, Any]) -> str:
    if profile.get("provider") == RULES or "temperature" not in settings:
        return ""
    if not profile.get("temperature", True):
        return "no temperature sent"
    value = settings["temperature"]
    return f"temperature {0 if value is None else value}"


def _describe_coverage(scores: Scores) -> str:
    coverage = scores.coverage
    begun = (
        f"The run is not complete: {coverage.not_yet} of {number_of(coverage.expected, 'verdict')} "
        f"{verb(coverage.not_yet, 'was', 'were')} not asked for yet. "
        if coverage.not_yet
        else ""
    )
    if not coverage.unjudged:
        return f"{begun}All {number_of(coverage.units, 'verdict')} {'asked for ' if begun else ''}were given."
    reasons = _join_words([f"{count} {reason.replace('_', ' ')}" for reason, count in coverage.reasons.items()])
    fate = f"{verb(coverage.unjudged, 'counts', 'count')} as the worst answer (a pessimistic bound)"
    if scores.unjudged_rule == "left_out":
        fate = f"{verb(coverage.unjudged, 'is', 'are')} left out of every score"
    return (
        f"{begun}Of {number_of(coverage.units, 'verdict')}, {coverage.judged} ({coverage.share * 100:.1f} %) were given; "
        f"{coverage.unjudged} ended unjudged ({reasons}) and {fate}."
    )


def _describe_intervals(level: float) -> str:
    return (
        f"Intervals of scores are {format_level(level)} t intervals of means within instruction types, with standard errors by "
        "source image, degrees of freedom by Satterthwaite, and Hall's correction for skewness; none is printed from fewer "
        f"than {MIN_SOURCES} source images."
    )


def _describe_labels(agreement: Agreement | None) -> list[str]:
    if agreement is None or not agreement.annotators:
        return []
    n = {measures.n for measures in agreement.criteria.values()}
    span = f"{min(n)} to {max(n)}" if len(n) > 1 else f"{max(n)}"
    people = number_of(len(agreement.annotators), "annotator")
    return [
        f"Agreement with people is over {span} edits labelled by {people} ({agreement.origin}).",
        agreement.consensus,
    ]


def _join_words(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
