"""Write the manifest, the data card, statistics and figures of a finished benchmark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from editloupe._util.files import atomic_text_file, write_text
from editloupe._util.text import for_json, for_markdown
from editloupe.evals.manifests.stats import ManifestStats, manifest_stats
from editloupe.making.folder import Ledger, MakingFolder, Sample
from editloupe.making.reviews import ReviewAgreement, review_agreement

MANIFEST, CARD, CARD_FACTS, FIGURES = "manifest.jsonl", "card.md", "card.json", "figures"
UNKNOWN_LICENCE = "not stated"


def manifest_rows(folder: MakingFolder, unreviewed: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the rows of the manifest: accepted samples, and with `unreviewed` also those that wait for review."""
    wanted = ("accepted", "review") if unreviewed else ("accepted",)
    for sample in folder.samples():
        if sample.step in wanted:
            yield _build_row(sample)


def _build_row(sample: Sample) -> dict[str, Any]:
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
    """Write the manifest and return its number of samples."""
    count = 0
    with atomic_text_file(folder.path / MANIFEST) as out:
        for row in manifest_rows(folder, unreviewed):
            out.write(for_json(row) + "\n")
            count += 1
    return count


def write_card(folder: MakingFolder, ledger: Ledger, unreviewed: bool = False) -> dict[str, Any]:
    """Write the data card as Markdown and JSON, and return its facts."""
    facts = collect_card_facts(folder, ledger, unreviewed)
    write_text(folder.path / CARD_FACTS, for_json(facts, 2) + "\n")
    write_text(folder.path / CARD, format_card(facts))
    return facts


def collect_card_facts(folder: MakingFolder, ledger: Ledger, unreviewed: bool = False) -> dict[str, Any]:
    """Return the facts of the data card."""
    rows = list(manifest_rows(folder, unreviewed))
    stats = manifest_stats(folder.path / MANIFEST) if rows else None
    people = folder.people()
    models: dict[str, Counter[str]] = {"metadata": Counter(), "boxes": Counter(), "references": Counter()}
    for sample in folder.samples():
        for stage, record in (("metadata", sample.metadata), ("boxes", sample.boxes), ("references", sample.reference)):
            if record is not None:
                models[stage]["people" if record.by in people else record.by] += 1
    agreement = review_agreement(folder)
    return {
        "samples": len(rows),
        "reviewed": sum(row["reviewed"] for row in rows),
        "types": dict(Counter(row["instruction_type"] for row in rows).most_common()),
        "targets": dict(sorted(Counter(str(len(row["target_boxes"])) for row in rows).items())),
        "datasets": dict(Counter(str(row["dataset"]) for row in rows).most_common()),
        "licences": dict(Counter(str(row["licence"] or UNKNOWN_LICENCE) for row in rows).most_common()),
        "area_percent": dict(stats.area) if stats else {},
        "sides": {name: dict(values) for name, values in stats.sides.items()} if stats else {},
        "waiting": {step: count for step, count in folder.steps().items() if step not in ("accepted", "left out")},
        "left_out": dict(Counter(folder.left_out().values()).most_common()),
        "made_by": {stage: dict(count.most_common()) for stage, count in models.items()},
        "reviewers": len({name for reviews in folder.reviews.by_sample.values() for name in reviews}),
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
        ("Area of the targets, % of the picture", "quantile", _round_values(facts["area_percent"])),
        ("Shorter side of the targets, pixels", "quantile", _round_values(facts["sides"].get("shorter side", {}))),
        ("Not in the manifest yet", "waits for", facts["waiting"]),
        ("Left out", "why", facts["left_out"]),
        *((f"{stage.capitalize()} by", "who", counts) for stage, counts in facts["made_by"].items()),
    )
    for title, name, counts in tables:
        if counts:
            lines += ["", f"## {title}", "", f"| {name} | |", "|---|---:|"]
            lines += [f"| {for_markdown(str(key))} | {value} |" for key, value in counts.items()]
    lines += ["", "## Review", "", _describe_agreement(ReviewAgreement.model_validate(facts["agreement"]))]
    lines += ["", f"Requests cost ${facts['dollars']:.4f}" + _format_unpriced(facts["requests_without_a_price"])]
    return "\n".join(lines) + "\n"


def _round_values(values: dict[str, float]) -> dict[str, str]:
    return {name: f"{value:.3g}" for name, value in values.items()}


def _format_unpriced(count: int) -> str:
    return f", without the {count} whose price is not known." if count else "."


def _describe_agreement(agreement: ReviewAgreement) -> str:
    if not agreement.pairs:
        return "No sample was reviewed by two people, so nothing is known of their agreement."
    alpha = f"Krippendorff's α {agreement.alpha:.3f}" if agreement.alpha is not None else f"no α: {agreement.why}"
    checks = ", ".join(f"{name} {100 * share:.0f} %" for name, share in agreement.checks.items() if share is not None)
    return (
        f"{agreement.samples} samples were reviewed by two people or more: the same decision in "
        f"{100 * (agreement.decision or 0):.0f} % of {agreement.pairs} pairs ({alpha}); "
        f"the same answer about {checks or 'nothing'}."
    )


def save_figures(stats: list[ManifestStats], folder: Path) -> int:
    """Draw types and areas of several manifests in shared figures, as PNG and SVG; return the number of figures."""
    from editloupe.evals.report.figures import area_curves, area_intervals, samples_by_type, save

    figures = {"samples_by_type": samples_by_type(stats)}
    if any(manifest.measured for manifest in stats):
        figures |= {"area_curves": area_curves(stats), "area_intervals": area_intervals(stats)}
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            save(figure, folder / f"{name}.{kind}")
    return len(figures)
