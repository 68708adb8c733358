"""What a report says about the order of editing models, and what stands beside it: nothing edited, as a reference."""

from __future__ import annotations

from collections.abc import Sequence

from editloupe.evals.analysis import reference as ref
from editloupe.evals.analysis.matching import same_judge
from editloupe.evals.analysis.model_pairs import ModelComparison, compare_models
from editloupe.evals.analysis.run_rows import Table


def rank_runs(tables: Sequence[Table]) -> ModelComparison | None:
    """Compare the editing models of several runs; None where other judges, protocols or edits leave nothing to compare."""
    if len(tables) < 2 or any(table.protocol != tables[0].protocol for table in tables):
        return None
    if any(not same_judge(tables[0], other) for other in tables[1:]):
        return None
    found = compare_models(tables, intervals=False, least=1)
    return found if any(pair.cases for pair in found.pairs) else None


def ranks_of_runs(ranking: ModelComparison | None, tables: Sequence[Table]) -> dict[str, tuple[int, int]]:
    """Return the open ranks by the run's folder, where every run holds one editing model and every model is in one run."""
    if ranking is None:
        return {}
    entries = {one.model: one.ranks for one in ranking.models}
    found = {}
    for table in tables:
        (model, *more) = ref.without_reference(table)[0].models
        names = (model, table.name, f"{model} ({table.name})", str(table.folder), f"{model} ({table.folder})")
        known = [entries[name] for name in dict.fromkeys(names) if name in entries]
        if more or len(known) != 1:
            return {}
        found[str(table.folder)] = known[0]
    return found if len(found) == len(entries) else {}


def ranking_notes(ranking: ModelComparison) -> list[str]:
    """Say what a reader of a ranking must know: the reference, models without some cases, means carried by unedited outputs."""
    told = [reference_sentence(ranking)]
    if any(one.lacks for one in ranking.models):
        held = ", ".join(f"{one.model} {one.cases}" for one in ranking.models)
        told.append(
            f"The models do not have the same cases ({held}): scores are over each model's own, tests over those that two share."
        )
    told += [ref.told(one.model, one.unedited) for one in ranking.models if one.unedited.carried]
    return told


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
