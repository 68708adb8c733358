"""What a finished benchmark is: a manifest, a data card, statistics and figures; written anew, whole, from the stages' files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from editloupe._util.files import text_file, write_text
from editloupe._util.text import for_json, for_markdown
from editloupe.evals.manifests.stats import ManifestStats, manifest_stats
from editloupe.making.folder import Ledger, MakingFolder, Sample
from editloupe.making.reviews import ReviewAgreement, review_agreement

MANIFEST, CARD, CARD_FACTS, FIGURES = "manifest.jsonl", "card.md", "card.json", "figures"
UNKNOWN_LICENCE = "not stated"


def manifest_rows(folder: MakingFolder, unreviewed: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the manifest's rows: accepted samples, and where it is wanted those nobody has reviewed yet."""
    wanted = ("accepted", "review") if unreviewed else ("accepted",)
    for sample in folder.samples():
        if sample.step in wanted:
            yield _row(sample)


def _row(sample: Sample) -> dict[str, Any]:
    question, metadata, boxes, reference = sample.question, sample.metadata, sample.boxes, sample.reference
    assert metadata is not None
    assert boxes is not None
    assert reference is not None
    return {
        "id": sample.id,
        "source": question.picture,
        "instruction": metadata.edit_instruction,
        "instruction_type": metadata.instruction_type,
        "target_boxes": [list(box) for box in boxes.boxes],
        "reference": reference.reference,
        "crop": list(reference.crop),
        "target_object": metadata.modified_object,
        "source_caption": metadata.prompt_clean,
        "reference_caption": metadata.prompt_adv,
        "q_type": metadata.q_type,
        "edit_ops": metadata.edit_ops,
        "question": question.question,
        "options": list(question.options),
        "answer": question.answer,
        "wrong_option": metadata.wrong_option,
        "dataset": question.source,
        "licence": question.licence,
        "reviewed": sample.step == "accepted",
    }


def write_manifest(folder: MakingFolder, unreviewed: bool = False) -> int:
    """Write the manifest and return how many samples it holds."""
    count = 0
    with text_file(folder.path / MANIFEST) as out:
        for row in manifest_rows(folder, unreviewed):
            out.write(for_json(row) + "\n")
            count += 1
    return count


def write_card(folder: MakingFolder, ledger: Ledger, unreviewed: bool = False) -> dict[str, Any]:
    """Write the data card as Markdown and as JSON; return its facts."""
    facts = collect_card_facts(folder, ledger, unreviewed)
    write_text(folder.path / CARD_FACTS, for_json(facts, 2) + "\n")
    write_text(folder.path / CARD, format_card(facts))
    return facts


def collect_card_facts(folder: MakingFolder, ledger: Ledger, unreviewed: bool = False) -> dict[str, Any]:
    """Return what the data card says."""
    kept = list(manifest_rows(folder, unreviewed))
    stats = manifest_stats(folder.path / MANIFEST) if kept else None
    people = folder.people()
    models: dict[str, Counter[str]] = {"metadata": Counter(), "boxes": Counter(), "references": Counter()}
    for sample in folder.samples():
        for stage, record in (("metadata", sample.metadata), ("boxes", sample.boxes), ("references", sample.reference)):
            if record is not None:
                models[stage]["people" if record.by in people else record.by] += 1
    agreement = review_agreement(folder)
    return {
        "samples": len(kept),
        "reviewed": sum(row["reviewed"] for row in kept),
        "types": dict(Counter(row["instruction_type"] for row in kept).most_common()),
        "targets": dict(sorted(Counter(str(len(row["target_boxes"])) for row in kept).items())),
        "datasets": dict(Counter(str(row["dataset"]) for row in kept).most_common()),
        "licences": dict(Counter(str(row["licence"] or UNKNOWN_LICENCE) for row in kept).most_common()),
        "area_percent": dict(stats.area) if stats else {},
        "sides": {name: dict(values) for name, values in stats.sides.items()} if stats else {},
        "waiting": {step: count for step, count in folder.steps().items() if step not in ("accepted", "left out")},
        "left_out": dict(Counter(folder.left_out().values()).most_common()),
        "made_by": {stage: dict(count.most_common()) for stage, count in models.items()},
        "reviewers": len({name for given in folder.reviews.by_sample.values() for name in given}),
        "agreement": agreement.model_dump(mode="json"),
        "dollars": round(ledger.spent, 9),
        "requests_without_a_price": ledger.unpriced,
    }


def format_card(facts: dict[str, Any]) -> str:
    """Return the data card as Markdown."""
    lines = ["# Data card", ""]
    lines.append(
        f"{facts['samples']} samples, {facts['reviewed']} of them accepted in review. Every sample has a source picture, "
        "target boxes, an instruction and a reference that differs from the source inside one crop only."
    )
    tables = (
        ("Instruction types", "type", facts["types"]),
        ("Targets a sample", "targets", facts["targets"]),
        ("Sources", "data set", facts["datasets"]),
        ("Licences of the pictures", "licence", facts["licences"]),
        ("Area of the targets, % of the picture", "quantile", _rounded(facts["area_percent"])),
        ("Shorter side of the targets, pixels", "quantile", _rounded(facts["sides"].get("shorter side", {}))),
        ("Not in the manifest yet", "waits for", facts["waiting"]),
        ("Left out", "why", facts["left_out"]),
        *((f"{stage.capitalize()} by", "who", counts) for stage, counts in facts["made_by"].items()),
    )
    for title, name, counts in tables:
        if counts:
            lines += ["", f"## {title}", "", f"| {name} | |", "|---|---:|"]
            lines += [f"| {for_markdown(str(key))} | {value} |" for key, value in counts.items()]
    lines += ["", "## Review", "", _agreement_sentence(ReviewAgreement.model_validate(facts["agreement"]))]
    lines += ["", f"Requests cost ${facts['dollars']:.4f}" + _unpriced(facts["requests_without_a_price"])]
    return "\n".join(lines) + "\n"


def _rounded(values: dict[str, float]) -> dict[str, str]:
    return {name: f"{value:.3g}" for name, value in values.items()}


def _unpriced(count: int) -> str:
    return f", without the {count} whose price is not known." if count else "."


def _agreement_sentence(found: ReviewAgreement) -> str:
    if not found.pairs:
        return "No sample was reviewed by two people, so nothing is known of their agreement."
    alpha = f"Krippendorff's α {found.alpha:.3f}" if found.alpha is not None else f"no α: {found.why}"
    checks = ", ".join(f"{name} {100 * share:.0f} %" for name, share in found.checks.items() if share is not None)
    return (
        f"{found.samples} samples were reviewed by two people or more: the same decision in "
        f"{100 * (found.decision or 0):.0f} % of {found.pairs} pairs ({alpha}); the same answer about {checks or 'nothing'}."
    )


def save_figures(found: list[ManifestStats], folder: Path) -> int:
    """Draw types and areas of manifests beside each other, as PNG and SVG; return how many figures."""
    from editloupe.evals.report.figures import area_curves, area_intervals, samples_by_type, save

    drawn = {"samples_by_type": samples_by_type(found)}
    if any(one.measured for one in found):
        drawn |= {"area_curves": area_curves(found), "area_intervals": area_intervals(found)}
    for name, figure in drawn.items():
        for kind in ("png", "svg"):
            save(figure, folder / f"{name}.{kind}")
    return len(drawn)
