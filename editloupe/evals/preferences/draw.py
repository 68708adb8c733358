"""Draw pairs of editing models' outputs, or of judges' rationales, for people to compare.

Outputs are paired if source, instruction and targets are the same, rationales if they are about the same edit and criterion.
"""

from __future__ import annotations

import os
import random
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from editloupe.evals.manifests.cases import NOTHING_EDITED
from editloupe.evals.preferences.pairs import TIE, UNCLEAR, DecisionRule, OpenPair, PairSide, content_id, shuffle_pairs
from editloupe.evals.runs.run_folder import PICTURES, PictureFolder
from editloupe.evals.stats.comparison.model_comparison import split_by_model
from editloupe.evals.stats.comparison.run_comparison import edited_picture_key
from editloupe.evals.stats.scores.run_table import RunRow, RunTable
from editloupe.rubrics.registry import DEFAULT_FOR_PAIRS, find_pair_rules
from editloupe.types import UserError, Verdict

LABEL_STEP = 25.0
"""One whole step of a scale of five labels, in points of 100."""
RATIONALE_QUESTION = (
    "Weigh what was decided, whether the reasoning is right, and whether it lets you follow the decision."
)


@dataclass(frozen=True)
class DrawSettings:
    """Settings of the draw.

    Args:
        dimensions: Dimensions to draw pairs for; by default all that the runs have a criterion of.
        criteria: Dimensions to the criterion used for each, if it is not one of the rules' own.
        margin: Points of 100 by which a side must be ahead to be clearly better.
        per_source: Maximum number of pairs per source in each dimension.
        seed: Seed of the draw.
        people: Number of people to ask per pair.
        rule: How their answers decide.
        within_model: Pair different outputs of one model, as a reward model compares them in training.
    """

    dimensions: Sequence[str] = ()
    criteria: Mapping[str, str] = field(default_factory=dict)
    margin: float = LABEL_STEP
    per_source: int | None = None
    seed: int = 0
    people: int = 2
    rule: DecisionRule = "third"
    within_model: bool = False


@dataclass
class DrawnPairs:
    """The drawn pairs, and the numbers of pairs that were left out."""

    pairs: list[OpenPair] = field(default_factory=list)
    unscored: int = 0
    """Pairs with an output that has no score in the dimension."""
    silent: int = 0
    """Pairs with a judge that gave no rationale."""
    same_picture: int = 0
    repeated: int = 0
    """Pairs of two pictures that another pair has already, because several outputs are the same picture."""
    no_picture: int = 0
    """Pairs with a picture that cannot be found."""
    marked: int = 0
    """Pairs whose source exists with and without drawn marks: a line of pairs holds only one source picture."""
    beyond: int = 0
    """Pairs beyond those of one source that were asked for."""
    unused: tuple[str, ...] = ()
    """Criteria of the runs that are used for no dimension."""

    def format_left_out(self) -> list[str]:
        """Return one sentence per reason for which pairs were left out."""
        sentences = {
            "one output has no score in the dimension": self.unscored,
            "a judge gave no verdict, or no rationale for it": self.silent,
            "both outputs are the same picture": self.same_picture,
            "another pair has the same two pictures": self.repeated,
            "a picture is no longer there": self.no_picture,
            "marks on the source are part of the instruction": self.marked,
            "beyond --per-source": self.beyond,
        }
        lines = [f"{count} left out: {why}" for why, count in sentences.items() if count]
        if self.unused:
            lines.append(
                f"not used: {', '.join(self.unused)}; --criterion DIMENSION=NAME lets one stand for a dimension"
            )
        return lines


def draw_pairs(tables: Sequence[RunTable], settings: DrawSettings, folder: Path) -> DrawnPairs:
    """Draw pairs of two editing models' outputs, or of one model's different outputs, from one run or several.

    Ids depend on the pictures, the instruction and the dimension only, so answers stay valid after a second draw.

    Args:
        tables: The runs, judged by the same judge and protocol.
        settings: Which pairs are drawn.
        folder: The folder of the file of pairs; picture paths are relative to it.

    Returns:
        The pairs, and the numbers of pairs that were left out.

    Raises:
        UserError: The runs do not fit together, or have no pair.
    """
    if len({(table.protocol, table.judges) for table in tables}) > 1:
        raise UserError("the runs were judged by different judges or protocols; their scores make no pairs together")
    title = " and ".join(dict.fromkeys(table.name for table in tables))
    groups = (_group_within_models if settings.within_model else _group_across_models)(tables, title)
    scored_by = _find_criteria(tables, settings, title)
    files = PictureFiles(tables, folder)
    used = {name for criteria in scored_by.values() for name in criteria}
    unused = [name for name in _list_criteria(tables) if name not in used]
    drawn = DrawnPairs(unused=() if settings.dimensions else tuple(unused))
    by_source: dict[tuple[str, str], list[OpenPair]] = {}
    ids: set[str] = set()
    for outputs in groups:
        for dimension, criteria in scored_by.items():
            for pair in _build_output_pairs(outputs, dimension, criteria, settings, files, drawn):
                if pair.id in ids:
                    drawn.repeated += 1
                    continue
                ids.add(pair.id)
                by_source.setdefault((dimension, pair.source), []).append(pair)
    _sample_and_shuffle(by_source, settings, drawn)
    return drawn


def _list_criteria(tables: Sequence[RunTable]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for table in tables for name in table.criteria))


def _sample_and_shuffle(
    by_source: Mapping[tuple[str, str], list[OpenPair]], settings: DrawSettings, drawn: DrawnPairs
) -> None:
    """Add pairs to those drawn, at most the allowed number per dimension and source."""
    for (dimension, source), pairs in by_source.items():
        sampled = sample_source_pairs(pairs, settings, f"{settings.seed}:{dimension}:{source}")
        drawn.beyond += len(pairs) - len(sampled)
        drawn.pairs += sampled
    drawn.pairs = shuffle_pairs(settings.seed, drawn.pairs)


def _group_across_models(tables: Sequence[RunTable], title: str) -> list[list[tuple[str, RunRow]]]:
    """Return the outputs of every case that at least two models have, each with its model."""
    models = split_by_model(tables)
    models.pop(NOTHING_EDITED, None)
    if len(models) < 2:
        raise UserError(
            f"{title} holds outputs of only one editing model ({', '.join(models)}), so there is no pair of two models; "
            "--within-model pairs different outputs of one"
        )
    cases: dict[Hashable, list[tuple[str, RunRow]]] = {}
    for model, rows in models.items():
        for row in rows:
            cases.setdefault(row.case, []).append((model, row))
    groups = [outputs for outputs in cases.values() if len({model for model, _ in outputs}) > 1]
    if not groups:
        raise UserError(f"no two models of {title} have an output for the same source and instruction")
    return groups


def _group_within_models(tables: Sequence[RunTable], title: str) -> list[list[tuple[str, RunRow]]]:
    """Return the outputs of one model for one case, if it has several. Outputs without a model's name are grouped by run."""
    groups: dict[Hashable, list[tuple[str, RunRow]]] = {}
    for table in tables:
        for row in table.rows:
            if row.model != NOTHING_EDITED:
                model = row.edit.model or table.name
                groups.setdefault((row.case, model), []).append((model, row))
    several = [outputs for outputs in groups.values() if len({edited_picture_key(row) for _, row in outputs}) > 1]
    if not several:
        raise UserError(f"no model of {title} has two different outputs for the same source and instruction")
    return several


def _find_criteria(tables: Sequence[RunTable], settings: DrawSettings, title: str) -> dict[str, dict[str, str]]:
    """Return the criteria of every dimension to draw for, each with its flag."""
    dimensions = find_pair_rules().criteria
    has = _list_criteria(tables)
    for dimension in (*settings.dimensions, *settings.criteria):
        if dimension not in dimensions:
            raise UserError(f'"{dimension}" is not a dimension; choose from: {", ".join(dimensions)}')
    for dimension, criterion in settings.criteria.items():
        if criterion not in has:
            raise UserError(f'{title} was not judged on "{criterion}" for {dimension}; it has: {", ".join(has)}')
    criteria: dict[str, dict[str, str]] = {}
    for dimension in dict.fromkeys(settings.dimensions or dimensions):
        own = dimensions[dimension]
        if dimension in settings.criteria:
            criteria[dimension] = {settings.criteria[dimension]: next(iter(own.values()))}
        elif judged := {name: flag for name, flag in own.items() if name in has}:
            criteria[dimension] = judged
        elif settings.dimensions:
            raise UserError(
                f"{title} has no criterion of {dimension} ({', '.join(own)}); it has: {', '.join(has)}: "
                f"name the one to use with --criterion {dimension}=NAME"
            )
    if not criteria:
        raise UserError(
            f"{title} has no criterion of {', '.join(dimensions)}; it has: {', '.join(has)}: "
            "name the ones to use with --criterion DIMENSION=NAME"
        )
    return criteria


def _build_output_pairs(
    outputs: Sequence[tuple[str, RunRow]],
    dimension: str,
    criteria: Mapping[str, str],
    settings: DrawSettings,
    files: PictureFiles,
    drawn: DrawnPairs,
) -> Iterator[OpenPair]:
    for (first_model, first), (second_model, second) in combinations(outputs, 2):
        if (first_model == second_model) != settings.within_model:
            continue
        scores = (_mean_score(first, criteria), _mean_score(second, criteria))
        pictures = (files.of(first, "edited"), files.of(second, "edited"), files.of(first, "source"))
        if edited_picture_key(first) == edited_picture_key(second):
            drawn.same_picture += 1
        elif scores[0] is None or scores[1] is None:
            drawn.unscored += 1
        elif "annotated" in first.edit.more_images:
            drawn.marked += 1
        elif None in pictures:
            drawn.no_picture += 1
        else:
            sides = [
                PairSide(key=content_id(edited_picture_key(row)), name=model, picture=picture, score=score)
                for model, row, picture, score in (
                    (first_model, first, pictures[0], scores[0]),
                    (second_model, second, pictures[1], scores[1]),
                )
            ]
            yield _build_output_pair(first, sides, dimension, criteria, str(pictures[2]), settings, files)


def _build_output_pair(
    row: RunRow,
    sides: Sequence[PairSide],
    dimension: str,
    criteria: Mapping[str, str],
    source: str,
    settings: DrawSettings,
    files: PictureFiles,
) -> OpenPair:
    first, second = sorted(sides, key=lambda side: side.key)
    rules = find_pair_rules()
    rubric = DEFAULT_FOR_PAIRS.rubric(rules.dimensions[dimension])
    return OpenPair(
        id=f"pair_{content_id(row.case, dimension, first.key, second.key)}",
        kind="outputs",
        dimension=dimension,
        title=rules.titles.get(dimension, dimension),
        question=rubric.question,
        prompt=row.edit.instruction,
        source=content_id(row.source),
        source_image=source,
        a=first,
        b=second,
        by_scores=compare_by_margin(first, second, settings.margin, rules.same),
        target_boxes=row.edit.target_boxes,
        people=settings.people,
        rule=settings.rule,
        fields=_build_fields(row, dimension, criteria, files),
    )


def compare_by_margin(first: PairSide, second: PairSide, margin: float, same: float) -> str:
    """Return the key of the side that is ahead by the margin, `tie` if the scores are equal, else `unclear`.

    >>> compare_by_margin(PairSide(key="x", name="m", score=75), PairSide(key="y", name="n", score=50), 25, 1e-5)
    'x'
    """
    assert first.score is not None
    assert second.score is not None
    ahead = first.score - second.score
    if abs(ahead) < same:
        return TIE
    # A margin of one step must not fail by the last digit of a mean.
    if abs(ahead) < margin - same:
        return UNCLEAR
    return first.key if ahead > 0 else second.key


def _mean_score(row: RunRow, criteria: Mapping[str, str]) -> float | None:
    """Return the mean of the criteria the row was asked; None if none was asked or one has no verdict."""
    means = []
    for criterion in criteria:
        if criterion in row.units:
            scores = [unit.score_100 for unit in row.units[criterion] if unit.judged and unit.score_100 is not None]
            if not scores:
                return None
            means.append(sum(scores) / len(scores))
    return sum(means) / len(means) if means else None


def _build_fields(row: RunRow, dimension: str, criteria: Mapping[str, str], files: PictureFiles) -> dict[str, Any]:
    rules, kind = find_pair_rules(), row.edit.instruction_type
    flags = {flag for name, flag in criteria.items() if name in row.units}
    fields: dict[str, Any] = {flag: flag in flags for flag in rules.criteria[dimension].values()}
    if kind:
        fields["task" if kind in DEFAULT_FOR_PAIRS.types else "instruction_type"] = kind
    fields |= {name: row.edit.extra[name] for name in rules.kept if isinstance(row.edit.extra.get(name), str)}
    if row.edit.hint:
        fields["hints"] = row.edit.hint
    references = [files.of(row, "references", position) for position in range(len(row.pictures.get("references", ())))]
    if references and None not in references:
        fields["reference_image_path"] = references
    return fields


def sample_source_pairs(pairs: list[OpenPair], settings: DrawSettings, seed: str) -> list[OpenPair]:
    """Draw some pairs of one source, clear ones first."""
    if settings.per_source is None or len(pairs) <= settings.per_source:
        return pairs
    chance = random.Random(seed)
    shuffled = chance.sample(sorted(pairs, key=lambda pair: pair.id), len(pairs))
    return sorted(shuffled, key=lambda pair: pair.by_scores == UNCLEAR)[: settings.per_source]


class PictureFiles:
    """Finds the pictures of rows: the run's own copies, which were judged, else the original files."""

    def __init__(self, tables: Sequence[RunTable], folder: Path) -> None:
        self._folders = [PictureFolder(table.folder / PICTURES) for table in tables]
        self._folder = folder.resolve()
        self._copies: dict[str, Path | None] = {}

    def of(self, row: RunRow, role: str, position: int = 0) -> str | None:
        """Return a picture's path relative to the file of pairs; None if it cannot be found."""
        shas = row.pictures.get(role, [])
        path = self._copy(shas[position]) if position < len(shas) else None
        if path is None:
            originals = [Path(str(picture)) for picture in row.edit.files.get(role, ())]
            path = originals[position] if position < len(originals) and originals[position].is_file() else None
        return os.path.relpath(path.resolve(), self._folder) if path else None

    def _copy(self, sha: str) -> Path | None:
        """Return a run's copy of a picture. Results are kept, since a candidate is part of many pairs."""
        if sha not in self._copies:
            self._copies[sha] = next((path for pictures in self._folders if (path := pictures.find(sha))), None)
        return self._copies[sha]


def draw_rationales(tables: Sequence[RunTable], settings: DrawSettings, folder: Path) -> DrawnPairs:
    """Draw a pair for every two judges' rationales about the same edited picture and criterion, from their first repeat.

    Args:
        tables: The runs, or configurations of a run, of two judges or more.
        settings: Which pairs are drawn; `dimensions` are criteria.
        folder: The folder of the file of pairs; picture paths are relative to it.

    Raises:
        UserError: There are no two judges, or they have no edit and criterion in common.
    """
    names = _name_judges(tables)
    wanted, has = set(settings.dimensions), _list_criteria(tables)
    if unknown := wanted.difference(has):
        raise UserError(f'"{min(unknown)}" was not judged in these runs; there are: {", ".join(has)}')
    files, drawn = PictureFiles(tables, folder), DrawnPairs()
    by_case: dict[Hashable, dict[str, tuple[RunRow, RunTable]]] = {}
    for table, judge in zip(tables, names, strict=True):
        for row in table.rows:
            for criterion in row.units if not wanted else wanted & row.units.keys():
                by_case.setdefault((row.case, edited_picture_key(row), criterion), {}).setdefault(judge, (row, table))
    by_source: dict[tuple[str, str], list[OpenPair]] = {}
    together = False
    for (_, _, criterion), by_judge in by_case.items():  # type: ignore[misc]
        for (first_judge, (first, table)), (second_judge, (second, _)) in combinations(by_judge.items(), 2):
            together = True
            rows = ((first_judge, first), (second_judge, second))
            sides = [_build_rationale_side(judge, row, str(criterion)) for judge, row in rows]
            pictures = files.of(first, "source"), files.of(first, "edited")
            if None in sides:
                drawn.silent += 1
            elif None in pictures:
                drawn.no_picture += 1
            else:
                pair = _build_rationale_pair(first, table, str(criterion), sides, pictures, settings)
                by_source.setdefault((pair.dimension, pair.source), []).append(pair)
    if not together:
        raise UserError(f"{' and '.join(t.name for t in tables)} have no edit and criterion in common")
    _sample_and_shuffle(by_source, settings, drawn)
    return drawn


def _name_judges(tables: Sequence[RunTable]) -> list[str]:
    """Name the judges by their titles, and by their runs if the titles are the same."""
    names = [table.title for table in tables]
    if len(set(names)) < 2:
        names = [f"{table.title} in {table.name}" for table in tables]
    if len(set(names)) < 2:
        raise UserError("rationales need two judges: name two runs, or one run and two of its configurations")
    return names


def _build_rationale_side(judge: str, row: RunRow, criterion: str) -> PairSide | None:
    outcome = row.units[criterion][0].outcome
    if not isinstance(outcome, Verdict) or not (outcome.rationale or "").strip():
        return None
    score = None if outcome.score_100 is None else f"{outcome.score_100:g} of 100"
    return PairSide(
        key=content_id(judge, outcome.rationale, outcome.label),
        name=judge,
        rationale=outcome.rationale,
        label=outcome.label or score,
    )


def _build_rationale_pair(
    row: RunRow,
    table: RunTable,
    criterion: str,
    sides: Sequence[PairSide | None],
    pictures: tuple[str | None, str | None],
    settings: DrawSettings,
) -> OpenPair:
    first, second = sorted((side for side in sides if side), key=lambda side: side.key)
    return OpenPair(
        id=f"rationales_{content_id(row.case, edited_picture_key(row), criterion, first.key, second.key)}",
        kind="rationales",
        dimension=criterion,
        title=table.title_of(criterion),
        question=RATIONALE_QUESTION,
        prompt=row.edit.instruction,
        source=content_id(row.source),
        source_image=str(pictures[0]),
        edited=str(pictures[1]),
        a=first,
        b=second,
        target_boxes=row.edit.target_boxes,
        people=settings.people,
        rule=settings.rule,
        fields={"edit_id": row.edit.id, **({"model": row.edit.model} if row.edit.model else {})},
    )
