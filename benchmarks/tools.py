"""Quality and time of the tools, as tables on the screen and in docs/inside/tool-benchmarks.md.

python -m benchmarks.tools SET... [--photographs NAME=FOLDER]... [--detector FOLDER] [--out FILE]
python -m benchmarks.tools MASKED --columns source=NAME,edited=NAME,mask=NAME [--out FILE]

MASKED is a folder or a table of edits with masks. NAME is a pattern of file names, such as *-input.png, or a column.
SET is a folder with manifest.jsonl; without one, the folder named by EDITLOUPE_CALIBRATION and its subfolder `hard`.
Photographs are pictures of two megapixels and more on which signs are changed; nothing of them is kept.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import cv2
import numpy as np
from skimage import data

from benchmarks.difference_scores import Answer, Localizer, ask, naive, read_set, ssim, summary
from benchmarks.fine_structure import ask_signs, reading_rows, reframe, sign_rows
from benchmarks.masked_sets import COLUMNS, measure_masked_set, parse_masked_set
from benchmarks.sign_pairs import photographs
from benchmarks.tiling_recall import SHARES as OBJECT_SHARES
from benchmarks.tiling_recall import figures, layouts
from editloupe.pictures.pixels import Pixels
from editloupe.tools.compare.difference import find_boxes
from editloupe.tools.geometry import overlap_area
from editloupe.tools.models.detectors import GroundingDino, cut_tiles
from editloupe.tools.models.real_esrgan import RealESRGAN
from editloupe.tools.models.upscalers import FastUpscaler
from editloupe.tools.read_text import ReadText
from editloupe.tools.settings import ToolSettings
from editloupe.types import Box, UserError

LOCALIZERS: dict[str, Localizer] = {"pixel difference": naive, "SSIM": ssim, "localize_differences": find_boxes}
Rows = list[list[str]]
CUTS = (0.0, 0.01, 0.03, 0.05, 0.08, -0.03)
"""Shares of each side that are cut off reframed pairs; below nought, added."""
STILL_KINDS = ("none", "jpeg", "tone", "soften", "sharpen")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", type=Path)
    parser.add_argument("--columns", action="append", metavar="FIELD=NAME,…", help="of edits with masks; repeatable")
    parser.add_argument("--detector", help="a folder with Grounding DINO weights; tiny random ones without it")
    parser.add_argument("--photographs", action="append", default=[], metavar="NAME=FOLDER", help="repeatable")
    parser.add_argument("--threads", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--workers", type=int, default=1, help="processes that look at large photographs")
    parser.add_argument("--rounds", type=int, default=1, help="times that other signs are put on every photograph")
    parser.add_argument("--out", type=Path, help="default: docs/inside/tool-benchmarks.md")
    options = parser.parse_args()
    cv2.setNumThreads(options.threads)
    if options.columns:
        deliver("\n\n".join(masked_tables(options.sets, options.columns)), options.out)
        return
    began = os.getloadavg()[0]
    parts = ["# How good and how fast the tools are", machine(options.threads)]
    for name, folder in calibration_sets(options.sets):
        parts += [f"## Differences: {name} set", *difference_tables(folder)]
        if name == "plain":
            parts += ["## Differences: reframed pairs", *reframed_table(folder)]
    if options.photographs:
        parts += [
            "## Fine structure in large photographs",
            *fine_tables(options.photographs, options.workers, options.rounds),
        ]
    parts += ["## Tiles of the detector", *tiling_tables()]
    parts += ["## Enhancer", *enhancer_table(options.threads)]
    parts += ["## Detector and text", *model_table(options.detector, options.threads)]
    parts[1] += (
        f" The load (one minute's average) was {began:.1f} at the start and {os.getloadavg()[0]:.1f} at the end."
    )
    deliver("\n\n".join(parts), options.out or Path("docs/inside/tool-benchmarks.md"))


def deliver(text: str, out: Path | None) -> None:
    """Print a text, and write it to a file if one is named."""
    print(text)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(f"{text}\n")


def masked_tables(paths: list[Path], columns: list[str]) -> Iterator[str]:
    """Compare the localizers on sets of edits with masks."""
    if not paths:
        raise SystemExit("name the folder or table that --columns describes")
    for path in paths:
        try:
            counted, hits = measure_masked_set(parse_masked_set(path, columns), LOCALIZERS)
        except UserError as error:
            raise SystemExit(str(error)) from None
        yield f"## Edits with masks: {path.name}"
        yield (
            f"{counted} A box is on the mask if a fifth of it is in the mask or half of the mask in it; off the mask if no pixel "
            "is. Of the first five boxes; times are CPU times."
        )
        yield table(["localizer", *COLUMNS], [[name, *own.row()] for name, own in hits.items()])


def calibration_sets(named: list[Path]) -> list[tuple[str, Path]]:
    """Return the sets to measure, called plain and hard, or by their folder."""
    if named:
        return [("hard" if path.name == "hard" else "plain", path) for path in named]
    folder = os.environ.get("EDITLOUPE_CALIBRATION")
    if not folder:
        raise SystemExit("name a calibration set, or set EDITLOUPE_CALIBRATION to its folder")
    sets = [("plain", Path(folder)), ("hard", Path(folder) / "hard")]
    return [(name, path) for name, path in sets if (path / "manifest.jsonl").is_file()]


def difference_tables(folder: Path) -> list[str]:
    """Compare the localizers on one set; each sees every pair right after the others, so that load hits all alike."""
    answers: dict[str, list[Answer]] = {name: [] for name in LOCALIZERS}
    for sample in read_set(folder):
        for name, localizer in LOCALIZERS.items():
            answers[name].append(ask(localizer, sample))
    figures = {name: summary(results) for name, results in answers.items()}
    columns = list(next(iter(figures.values())))
    rows = [[name, *(_number(figures[name][c]) for c in columns)] for name in figures]
    base = figures["pixel difference"]["ms/MP"]
    for row, name in zip(rows, figures, strict=True):
        row.append(f"{figures[name]['ms/MP'] / base:.1f} ×")
    ours = answers["localize_differences"]
    by_kind: Rows = []
    for kind in dict.fromkeys(a.sample.disturbance for a in ours):
        part = summary([a for a in ours if a.sample.disturbance == kind])
        by_kind.append([kind, *(_number(part[c]) for c in columns)])
    return [
        _counts(ours),
        table(["localizer", *columns, "time"], rows),
        "`localize_differences` by how the rest of the picture was disturbed:",
        table(["disturbance", *columns], by_kind),
    ]


def _counts(answers: list[Answer]) -> str:
    """Return on how many changes and pairs the percentages rest."""
    local = [a.sample for a in answers if not a.sample.collapse]
    changes, quiet = sum(len(s.changed) for s in local), sum(not s.changed for s in local)
    return (
        f"{changes} changes in {len(local) - quiet} pairs, and {quiet} unchanged pairs, on which alone the false alarms rest; "
        f"{len(answers) - len(local)} more pairs, with the whole scene changed, are left out. The tool was developed with these "
        "pairs in sight, so expect less on others."
    )


def reframed_table(folder: Path) -> list[str]:
    """Cut the edited pictures of a set out again, by other amounts than any set does."""
    rng = np.random.default_rng(3)
    samples = [s for s in read_set(folder) if not s.collapse and s.disturbance in STILL_KINDS]
    rows: Rows = []
    for cut in CUTS:
        answers = []
        for sample in samples:
            edited, frame = reframe(sample.edited, cut, rng) if cut else (sample.edited, None)
            seen = [c for c in sample.changed if frame is None or overlap_area(c, frame) >= 0.7 * c.area]
            answers.append(ask(find_boxes, replace(sample, edited=edited, changed=tuple(seen))))
        part = summary(answers)
        words = "as they are" if not cut else f"{100 * cut:g} % cut off" if cut > 0 else f"{-100 * cut:g} % added"
        rows.append([words, *(_number(value) for value in part.values())])
    sentence = (
        f"{len(samples)} pairs of the plain set that were not moved, cut out at random places and brought back to their "
        "size; changes that are mostly cut off do not count."
    )
    return [sentence, table(["edited picture", *summary([])], rows)]


def fine_tables(named: list[str], workers: int, rounds: int) -> list[str]:
    """Show how well changed signs are found on every folder of photographs, and read on the first."""
    parts = [
        "A sign of so much of the picture, with a word, two letters of a word, a number, the hands of a clock or a thin symbol "
        "changed: how many are among the first five boxes. False alarms are unchanged pairs with any box."
    ]
    folders = [(name, Path(folder)) for name, _, folder in (text.partition("=") for text in named)]
    for number, (name, folder) in enumerate(folders):
        header, rows = sign_rows(ask_signs(folder, 100 * number, workers, rounds))
        parts += [f"{len(photographs(folder))} photographs ({name}):", table(header, rows)]
    read_right = reading_rows(folders[0][1])
    if read_right:
        parts += ["Signs read letter by letter:", table(["height of capitals", "read right"], read_right)]
    return parts


def tiling_tables() -> list[str]:
    """Show what the tiles of the detector are worth, with a scripted detector over 200 layouts."""
    made = {share: layouts(share, 40) for share in OBJECT_SHARES}
    parts = [
        "A scripted detector that sees an object from so many pixels on, in what the model would be given, over 200 random "
        "layouts: objects found (IoU ≥ 0.5) in percent / boxes beside the first on an object, for a hundred objects."
    ]
    rows: Rows = []
    for least in (16, 24, 32):
        for levels in ((), (2,), (3,), (2, 3), (4,)):
            cell_figures = [figures(made[share], least, levels) for share in OBJECT_SHARES]
            cut = "none" if not levels else " and ".join(f"{level} × {level}" for level in levels)
            cells = [f"{figure.recall:.0f} / {figure.duplicates:.1f}" for figure in cell_figures]
            rows.append([f"{least} px", cut, f"{cell_figures[0].passes:.0f}", *cells])
    shares = [f"{100 * share:g} %" for share in OBJECT_SHARES]
    return [*parts, table(["seen from", "tiles", "passes", *shares], rows)]


def enhancer_table(threads: int) -> list[str]:
    """Enlarge photographs that were shrunk four times."""
    real, alone = RealESRGAN(threads=threads), RealESRGAN(threads=threads, share=1)
    ways: dict[str, Callable[[Pixels], Pixels]] = {
        "bicubic": lambda small: np.asarray(
            cv2.resize(small, None, fx=4, fy=4, interpolation=cv2.INTER_CUBIC), np.uint8
        ),
        "fast": lambda small: FastUpscaler().upscale(small, 4.0),
    }
    if real.unavailable() is None:
        ways["Real-ESRGAN alone"] = lambda small: alone.upscale(small, 4.0)
        ways["realesrgan (corrected, mixed)"] = lambda small: real.upscale(small, 4.0)
        for model in (real, alone):
            model.upscale(np.zeros((8, 8, 3), np.uint8), 4.0)  # loads the weights
    rows = []
    for name, enlarge in ways.items():
        quality, seconds = [], []
        for truth, small in shrunken():
            started = time.process_time()
            large = enlarge(small)
            seconds.append(time.process_time() - started)
            quality.append(10 * np.log10(255**2 / np.mean((large.astype(float) - truth) ** 2)))
        rows.append(
            [name, f"{statistics.mean(quality):.2f}", f"{min(quality):.2f}", f"{1000 * statistics.median(seconds):.1f}"]
        )
    header = ["enlarging 64 × 64 pixels four times", "PSNR, mean (dB)", "PSNR, worst (dB)", "CPU ms a crop"]
    return [table(header, rows)]


def shrunken() -> Iterator[tuple[Pixels, Pixels]]:
    """Yield details of photographs that come with scikit-image, and the same four times smaller."""
    places = (
        ("astronaut", 120, 60),
        ("astronaut", 200, 250),
        ("chelsea", 180, 40),
        ("coffee", 300, 140),
        ("coffee", 50, 140),
    )
    for name, x, y in places:
        truth = np.ascontiguousarray(getattr(data, name)()[y : y + 256, x : x + 256])
        yield truth, np.asarray(cv2.resize(truth, (64, 64), interpolation=cv2.INTER_AREA), np.uint8)


def model_table(detector: str | None, threads: int) -> list[str]:
    """Time the detector and the reader on one photograph."""
    photo = np.ascontiguousarray(data.astronaut())
    rows: Rows = []
    with tempfile.TemporaryDirectory() as folder:
        kind = "given weights"
        if detector is None:
            from tests.tools.tiny_grounding import save_tiny_grounding_dino

            detector, kind = (
                str(save_tiny_grounding_dino(Path(folder))),
                "tiny random weights: the cost of our own code",
            )
        for levels in ((), (2,), (2, 3)):
            model = GroundingDino(ToolSettings(detector=detector, tile_levels=levels, threads=threads))
            passes = 1 + len(cut_tiles((512, 512), levels))
            seconds = timed(lambda model=model: model.detect(photo, "red cup"))  # type: ignore[misc]
            rows.append(
                [
                    f"Grounding DINO, {passes} {'pass' if passes == 1 else 'passes'} ({kind})",
                    f"{1000 * seconds:.0f}",
                    f"{passes / seconds:.1f} passes",
                ]
            )
    reader = ReadText(ToolSettings(threads=threads))
    if reader.unavailable() is None:
        seconds = timed(lambda: reader.read_lines(photo, Box(x1=0, y1=0, x2=512, y2=512)))
        rows.append(["rapidocr", f"{1000 * seconds:.0f}", f"{1 / seconds:.1f} pictures"])
    return [table(["512 × 512 photograph", "CPU ms", "per CPU second"], rows)]


def timed(run: Callable[[], object], times: int = 3) -> float:
    """Return the median CPU seconds of a call, after one that loads everything."""
    run()
    seconds = []
    for _ in range(times):
        started = time.process_time()
        run()
        seconds.append(time.process_time() - started)
    return statistics.median(seconds)


def machine(threads: int) -> str:
    """Describe the machine, without names or paths."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").is_file():
        names = [
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ]
        cpu = names[0] if names else cpu
    packages = ("numpy", "opencv-python-headless", "scikit-image", "torch", "transformers", "ncnn", "rapidocr")
    listed = ", ".join(f"{name} {version}" for name in packages if (version := _version(name)))
    cores = f"{os.cpu_count()} cores, {threads} {'thread' if threads == 1 else 'threads'}, {gpu()}"
    return (
        f"Measured by `python -m benchmarks.tools` on {cpu}, {cores}, {platform.system()}, Python {platform.python_version()}; "
        f"{listed}. All times are CPU times, on a machine that other work may share: compare them within a table only."
    )


def gpu() -> str:
    """Say which GPU the models can use."""
    if _version("torch") is None:
        return "torch not installed"
    import torch

    return str(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else "no GPU"


def table(header: list[str], rows: Rows) -> str:
    """Write a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.1f}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
