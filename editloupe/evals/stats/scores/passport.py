"""The passport of a table of scores: everything that decides whether two numbers can be compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import Field

from editloupe._util.hashing import content_key
from editloupe._util.text import number_of
from editloupe.evals.runs.configurations import list_recorded_rubrics
from editloupe.evals.stats.scores.published_tables import find_asked_rules
from editloupe.evals.stats.scores.run_scores import Coverage, compute_scores
from editloupe.evals.stats.scores.run_table import RunTable
from editloupe.evals.stats.scores.unedited_baseline import split_off_reference
from editloupe.pictures.encode import LOSSLESS_PIXELS, EncodingLimits
from editloupe.rubrics.model import MeasuredAnswer
from editloupe.types import Record

LANGUAGE, SUBSET = "language", "subset"
NOT_KNOWN = "not known"
_SAMPLING = ("temperature", "top_p", "seed", "reasoning_effort", "thinking_budget", "thinking_level", "extra_body")
_READING = (
    "structured",
    "max_repairs",
    "min_confidence",
    "our_notes",
    "tells",
    "target_crop",
    "differences",
    "max_turns",
)
_FIELDS = {
    "protocol": "follow different protocols ({} and {})",
    "cases": "do not have the same cases ({} and {})",
    "hints": "tell the judge different hints ({} and {})",
    "languages": "are in different languages ({} and {})",
    "subsets": "cover different subsets ({} and {})",
    "wording": "have different wording of {}",
    "reading": "ask or read replies with different settings ({})",
    "aggregation": "are aggregated by different rules ({} and {})",
    "pictures": "send pictures in different forms ({} and {})",
    "judge": "have different judges ({} and {})",
    "served": "come from different versions of the judge ({} and {})",
    "sampling": "sample with different settings ({})",
    "mode": "are in different modes ({} and {})",
    "tools": "use different tools or measures ({})",
}
"""The fields that decide whether two numbers can be compared, and the words for a difference."""


class Passport(Record):
    """What decides whether the scores of two tables can be compared."""

    protocol: str
    edits: int
    """Edits of all editing models."""
    cases: str
    """Number of cases and a hash of them, such as `240:1f0c…`, which identifies the revision of the benchmark. A case is a
    source picture with an instruction, its type and its further pictures."""
    hints: str = ""
    """Hash of the hints, such as explanations, if a rubric shows them to the judge; empty if there are none."""
    languages: tuple[str, ...] = ()
    subsets: tuple[str, ...] = ()
    wording: Mapping[str, str]
    """Hash of the rubric in all its variants, by criterion."""
    reading: Mapping[str, Any]
    """Version of EditLoupe that read the replies, settings of asking and reading, and rules that changed what was asked."""
    aggregation: str
    """`text` if scores follow the paper's text, else the rules; and how unjudged verdicts count."""
    pictures: str
    """How pictures were prepared."""
    judge: str
    served: tuple[str, ...]
    """Versions of the judge that the provider reported; empty if it reported none."""
    sampling: Mapping[str, Any]
    mode: str
    """`not known` for imported verdicts."""
    tools: Mapping[str, Any]
    """The tools that were offered and the measures that were computed, with their versions and settings."""
    repeats: int
    judged: int
    unjudged: int
    absent: int
    """Verdicts that were not asked for yet."""
    imported: bool = Field(default=False, exclude_if=lambda value: not value)

    @property
    def key(self) -> str:
        """A hash of everything that decides comparability; rows with the same key can be ranked together."""
        return content_key({name: getattr(self, name) for name in _FIELDS})[:12]

    @property
    def line(self) -> str:
        """The passport in one line."""
        count, _, cases = self.cases.partition(":")
        served = f" ({', '.join(self.served)})" if self.served else ""
        parts = [
            f"{self.protocol}, {number_of(int(count), 'case')} {cases}",
            *(", ".join(values) for values in (self.languages, self.subsets[:3]) if values),
            f"wording {content_key(self.wording)[:6]}",
            f"read by {self.reading.get('editloupe', NOT_KNOWN)}" if not self.imported else "imported",
            self.aggregation,
            *([self.pictures] if not self.imported else []),
            f"{self.judge}{served}"
            + (f", {self.mode} mode" if not self.imported else "")
            + (f", {number_of(len(self.tools), 'tool')}" if self.tools else ""),
            number_of(self.repeats, "repeat"),
            f"{self.judged} judged, {self.unjudged} unjudged, {self.absent} absent",
        ]
        return f"Passport {self.key}: {' · '.join(parts)}."


def build_passport(
    table: RunTable, coverage: Coverage, unjudged: str = "left_out", rules: Mapping[str, str] | None = None
) -> Passport:
    """Build the passport of a run's scores.

    Args:
        table: The run's table, without the unedited baseline.
        coverage: How many verdicts there are.
        unjudged: How unjudged verdicts count, `left_out` or `worst`.
        rules: The rules of the paper's public script, if the tables follow them.
    """
    entry = table.entry
    settings, profile = entry.get("settings", {}), entry.get("profile", {})
    rule = "text" if rules is None else ", ".join(f"{name}={value}" for name, value in sorted(rules.items()))
    return Passport(
        protocol=table.protocol,
        edits=len(table.rows),
        cases=_hash_cases(table),
        hints=_hash_hints(table),
        languages=_list_values(table, LANGUAGE),
        subsets=_list_values(table, SUBSET),
        wording={name: _hash_wording(table, name) for name in table.criteria},
        reading={
            "editloupe": entry.get("versions", {}).get("editloupe", NOT_KNOWN),
            **{name: settings[name] for name in _READING if name in settings},
            **find_asked_rules(table),
        },
        aggregation=f"by the {rule if rules is None else f'rules {rule}'}, unjudged {unjudged.replace('_', ' ')}",
        pictures=_describe_pictures(settings, profile),
        judge=" + ".join(table.judges),
        served=tuple(sorted({version.served.summary for version in table.versions})),
        sampling={name: value for name in _SAMPLING if (value := settings.get(name)) not in (None, {})},
        mode=NOT_KNOWN if table.imported else " + ".join(table.modes),
        tools={**entry.get("tools", {}), **_list_measures(table, entry)},
        repeats=len(table.repeats),
        judged=coverage.judged,
        unjudged=coverage.unjudged,
        absent=coverage.not_yet,
        imported=table.imported,
    )


def build_run_passport(table: RunTable) -> Passport:
    """Build the passport of a run's scores by the usual rules, without the unedited baseline."""
    own, _ = split_off_reference(table)
    return build_passport(own, compute_scores(own).coverage)


def _list_measures(table: RunTable, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the measured criteria of a table depend on, such as the weights of their models, by measure."""
    answers = [answer for name in table.criteria if isinstance(answer := table.answer(name), MeasuredAnswer)]
    facts = entry.get("measures", {})
    return {answer.measure: facts.get(answer.measure) for answer in answers}


def _hash_cases(table: RunTable) -> str:
    return _hash_all(repr((row.case, row.edit.instruction_type)) for row in table.rows)


def _hash_hints(table: RunTable) -> str:
    recorded = [*list_recorded_rubrics(table.about, table.protocol, table.configuration), *table.rubrics.values()]
    if not any("hint" in rubric.get("tells", ()) for rubric in recorded):
        return ""
    hints = [repr((row.case, row.edit.hint)) for row in table.rows if row.edit.hint]
    return _hash_all(hints) if hints else ""


def _hash_all(texts: Iterable[str]) -> str:
    """Return the number of different texts and a hash of all of them, in any order."""
    total, digests = 0, set()
    for text in texts:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest not in digests:
            digests.add(digest)
            total ^= int.from_bytes(digest, "big")
    return f"{len(digests)}:{total:032x}"[: len(str(len(digests))) + 9]


def _hash_wording(table: RunTable, criterion: str) -> str:
    """Return a hash of a criterion's rubric in all its variants."""
    recorded = list_recorded_rubrics(table.about, table.protocol, table.configuration)
    variants = [rubric for rubric in recorded if rubric["criterion"] == criterion]
    texts = sorted(variants, key=lambda rubric: str(rubric.get("variant")))
    return content_key(texts if len(texts) > 1 else table.rubrics.get(criterion, {}))[:12]


def _list_values(table: RunTable, field: str) -> tuple[str, ...]:
    return tuple(sorted({str(row.edit.extra[field]) for row in table.rows if field in row.edit.extra}))


def _describe_pictures(settings: Mapping[str, Any], profile: Mapping[str, Any]) -> str:
    """Return the size and the format of sent pictures, from what the run recorded."""
    sides = [side for side in (settings.get("long_side"), profile.get("max_long_side")) if isinstance(side, int)]
    if not sides:
        return "picture sizes not known"
    most = profile.get("max_image_bytes")
    size = f" and {most / 1_000_000:g} MB" if isinstance(most, int) else ""
    quality = EncodingLimits().quality
    return f"pictures up to {min(sides)} px{size}, as stored or PNG up to {LOSSLESS_PIXELS} pixels, else JPEG {quality}"


def compare_passports(first: Passport, second: Passport) -> list[str]:
    """Return why two numbers cannot be compared, a sentence per reason; empty if they can.

    Args:
        first: The passport of one table.
        second: The passport of the other.
    """
    return [f"They {text}." for text in _differences(first, second)]


def describe_counts(first: Passport, second: Passport) -> list[str]:
    """Return what differs between two tables without making their numbers incomparable."""
    sentences = []
    if first.repeats != second.repeats:
        sentences.append(f"One has {number_of(first.repeats, 'repeat')}, the other {second.repeats}.")
    for name in ("unjudged", "absent"):
        counts = getattr(first, name), getattr(second, name)
        if any(counts):
            sentences.append(f"{counts[0]} and {counts[1]} verdicts are {name}: the scores do not count them alike.")
    if first.imported or second.imported:
        sentences.append("Imported verdicts say nothing of settings, so equal passports may hide a difference.")
    return sentences


def _differences(first: Passport, second: Passport) -> Iterator[str]:
    for name, words in _FIELDS.items():
        before, after = getattr(first, name), getattr(second, name)
        if before == after:
            continue
        if isinstance(before, Mapping):
            changed = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
            yield words.format(", ".join(changed))
        else:
            yield words.format(_format(before), _format(after))


def _format(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(value) or NOT_KNOWN
    return str(value)
