"""What a report says about the order of editing models, and what stands beside it: nothing edited, as a reference."""

from __future__ import annotations

from collections.abc import Sequence

from editloupe.evals.analysis import reference as ref
from editloupe.evals.analysis.compare import same_judge
from editloupe.evals.analysis.model_comparison import ModelComparison, compare_apart
from editloupe.evals.analysis.parts import BETWEEN, parts_of, shared_apart_fields, value_of
from editloupe.evals.analysis.run_table import Table


def rank_runs(tables: Sequence[Table]) -> tuple[ModelComparison, ...]:
    """Compare the editing models of several runs; nothing where other judges, protocols or edits leave nothing to compare."""
    if len(tables) < 2 or any(table.protocol != tables[0].protocol for table in tables):
        return ()
    if any(not same_judge(tables[0], other) for other in tables[1:]):
        return ()
    found = compare_apart(tables, intervals=False, least=1)
    return found if any(pair.cases for one in found for pair in one.pairs) else ()


def ranks_of_parts(
    rankings: Sequence[ModelComparison], tables: Sequence[Table]
) -> dict[tuple[str, tuple[str, ...]], tuple[int, int]]:
    """Return the open ranks of every part of every run, by the run's folder and the part's group."""
    entries = {(one.part, entry.model): entry.ranks for one in rankings for entry in one.models}
    fields = shared_apart_fields(tables) if rankings else ()
    found = {}
    for table in tables if rankings else ():
        for part in parts_of(ref.without_reference(table)[0]):
            model, apart = part.group[0], tuple(value_of(part.table.rows[0], field) for field in fields)
            names = (model, table.name, f"{model} ({table.name})", str(table.folder), f"{model} ({table.folder})")
            known = [entries[apart, name] for name in dict.fromkeys(names) if (apart, name) in entries]
            if len(known) == 1:
                found[str(table.folder), part.group] = known[0]
    return found


def ranking_answer(rankings: Sequence[ModelComparison]) -> str:
    """Say which model is best, where that is known, in every part; of a single model whether it beats the reference."""
    told = []
    for one in rankings:
        said = one.answer if len(one.models) > 1 else below_reference(one)
        told += [f"{BETWEEN.join(one.part)}: {said}" if one.part else said] if said else []
    return " ".join(told)


def ranking_notes(rankings: Sequence[ModelComparison]) -> list[str]:
    """Say what a reader of a ranking must know: the reference, models without some cases, means carried by unedited outputs."""
    found = []
    for one in rankings:
        head = f"{BETWEEN.join(one.part)}: " if one.part else ""
        told = [reference_sentence(one)]
        if any(entry.lacks for entry in one.models):
            held = ", ".join(f"{entry.model} {entry.cases}" for entry in one.models)
            scope = "scores are over each model's own, tests over those that two share"
            told.append(f"The models do not have the same cases ({held}): {scope}.")
        told += [ref.told(entry.model, entry.unedited) for entry in one.models if entry.unedited.carried]
        found += [head + sentence for sentence in told]
    return found


def reference_sentence(ranking: ModelComparison) -> str:
    """Say what an editor that edits nothing scores on these cases, or why nobody knows."""
    one = ranking.reference
    if one.overall.value is None:
        return f"What every source handed in unedited would score is not known: {one.overall.why}."
    how = "judged like the others" if one.judged else "by the protocol's own words"
    return f"Every source handed in unedited would score {one.overall.value:.1f} ({how}): the reference for every mean here."


def below_reference(ranking: ModelComparison) -> str:
    """Say of a single model that it does not clearly beat the reference, where that is so; else nothing."""
    if not ranking.against_reference or ranking.against_reference[0].overall.better == ranking.models[0].model:
        return ""
    return f"That is not clearly better than an unedited source, which scores {ranking.reference.overall.value:.1f}."
