"""Check that a long batch stays as fast and as small as a short one, and measure what is done with its run afterwards.

    python benchmarks/growth.py                              # 20 000 edits of 64 × 64 without tools
    python benchmarks/growth.py --scenario tools --edits 2000 --size 1280x960
    python benchmarks/growth.py --edits 2000                 # a tenth of it
    python benchmarks/growth.py --edits 10000 --size 1024x1024 --table      # pictures in one Parquet table, no two alike
    python benchmarks/growth.py --edits 200000 --pairs 200000 --copies      # write and read a run, asking for one edit only

Memory is what the process and those it began hold, counted in the second and in the last tenth of the units while they are
judged; the peak is that of the whole command, which reads all verdicts for its summary. The CPU time a unit takes is counted in
the same tenths: other work on the machine disturbs it less than seconds.

With `--copies` the first edit is judged, and the store's functions write copies of its rows for all others, with their own
keys, pictures and texts and with other labels. The same batch then finds every verdict.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import batch

AFTERWARDS = {
    "run info": ["run", "info", "RUN"],
    "the same batch, --dry-run": ["--dry-run"],
    "the same batch": ["--quiet"],
    "report": ["report", "RUN"],
    "report --format html": ["report", "RUN", "--format", "html", "--out", "OUT"],
    "export": ["export", "RUN", "--format", "jsonl", "--out", "OUT"],
    "agree": ["agree", "RUN"],
    "traces (makes its index)": ["traces", "RUN", "--where", 'label = "Wrong Action"', "--limit", "5"],
    "traces": ["traces", "RUN", "--where", 'label = "Wrong Action"', "--limit", "5"],
}
NOWHERE = "http://127.0.0.1:9/v1"
"""The address of the same batch: it asks nothing."""
AT_ONCE = 1000
ROLES = ("source", "edited")
STUDIO = """
import sys, time
from pathlib import Path
from starlette.testclient import TestClient
from editloupe.servers.studio.app import create_app
from editloupe.servers.studio.settings import StudioSettings
began, run = time.process_time(), Path(sys.argv[1])
settings = StudioSettings(runs=(run,))
app = create_app(settings)
app.state.studio.pages.warm()
taken = {"opened": time.process_time() - began}
with TestClient(app, base_url="http://127.0.0.1:8642") as client:
    client.headers["authorization"] = f"Bearer {settings.token}"
    for name in ("", "?page=1000000", "?status=unjudged", "?apart=people&order=apart", "?text=ball+77", "/charts"):
        for again in ("first ", ""):
            began = time.process_time()
            assert client.get(f"/runs/{run.name}{name}").status_code == 200
            taken[f"{again}{name or 'list'}"] = time.process_time() - began
print("; ".join(f"{name} {seconds:.2f}" for name, seconds in taken.items()))
"""


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        manifest, run = folder / ("long.parquet" if options.table else "long.jsonl"), folder / "run"
        if not manifest.exists():
            make_edits(manifest, options)
        if not run.exists():
            judge(options, manifest, run)
        if options.copies and done(run) == 2:
            started = time.process_time()
            copy_answers(manifest, run)
            size = (run / "run.sqlite").stat().st_size
            print(
                f"{options.edits} edits copied, CPU {time.process_time() - started:.0f} s, tables {size / 1e9:.1f} GB"
            )
        places = {"RUN": str(run), "OUT": str(folder / "out")}
        for name, arguments in AFTERWARDS.items():
            if arguments[0].startswith("--"):
                arguments = [*batch.ours(options, manifest, run, "local"), *arguments]
            places["URL"] = NOWHERE
            command = [sys.executable, "-c", batch.START, *(places.get(part, part) for part in arguments)]
            wall, cpu, memory, _ = batch.run_timed(command)
            print(f"{name:26} {wall:7.1f} s   CPU {cpu:6.1f} s   peak {memory.peak:.0f} MB", flush=True)
        _, cpu, memory, output = batch.run_timed([sys.executable, "-c", STUDIO, str(run)])
        print(f"{'studio, pages':26}             CPU {cpu:6.1f} s   peak {memory.peak:.0f} MB: {output.strip()}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=500, help="different pairs of pictures; edits use them in turn")
    parser.add_argument("--size", type=batch.size, default=(64, 64))
    parser.add_argument("--scenario", choices=batch.SCENARIOS, default="plain")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--executor", choices=("local", "ray"), default="local")
    parser.add_argument(
        "--table", action="store_true", help="a Parquet table that holds the pictures, in row groups of 100"
    )
    parser.add_argument("--copies", action="store_true", help="judge one edit and copy its answers to the others")
    parser.add_argument("--keep", help="a folder to keep the run in, and to find it again")
    options = parser.parse_args()
    if options.table and options.copies:
        parser.error("--copies links picture files, and --table has none")
    return options


def make_edits(manifest: Path, options: argparse.Namespace) -> None:
    """Write a manifest of this many edits, with people's labels."""
    short = batch.make_edits(manifest.parent, min(options.pairs, options.edits), options.size)
    labels = ("Flawless Execution", "Wrong Action")
    rows = (
        {
            **row,
            "human": {"instruction_following": labels[number % 2], "visual_consistency": "Single Anomaly"},
            "model": f"m{number % 4}",
        }
        for number, row in enumerate(batch.repeat_edits(short, options.edits))
    )
    if options.table:
        write_table(manifest, rows)
        return
    with manifest.open("w") as out:
        out.writelines(f"{json.dumps(row)}\n" for row in rows)


def write_table(file: Path, rows: Iterator[dict[str, Any]]) -> None:
    """Write rows with their pictures. The row's id after the end of each JPEG gives every row pictures of its own."""
    import pyarrow
    from pyarrow import parquet

    def load(row: dict[str, Any], role: str) -> dict[str, Any]:
        return {"bytes": (file.parent / row[role]).read_bytes() + row["id"].encode(), "path": row[role]}

    writer = None
    while group := list(itertools.islice(rows, 100)):
        table = pyarrow.Table.from_pylist([{**row, **{role: load(row, role) for role in ROLES}} for row in group])
        writer = writer or parquet.ParquetWriter(file, table.schema)
        writer.write_table(table)
    if writer:
        writer.close()
    print(f"the table has {file.stat().st_size / 1e9:.1f} GB", flush=True)


def judge(options: argparse.Namespace, manifest: Path, run: Path) -> None:
    """Judge the manifest, and sample memory and time every second."""
    units = 2 if options.copies else 2 * options.edits
    print(
        f"{options.edits} edits of {options.size[0]} × {options.size[1]}, {options.scenario}, {units} units", end="; "
    )
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start", flush=True)
    samples: list[tuple[int, float, float]] = []
    """Units done, core-seconds and megabytes."""
    started = time.perf_counter()
    with batch.Server(options) as server:
        arguments = [
            server.url if part == "URL" else part for part in batch.ours(options, manifest, run, options.executor)
        ]
        process = subprocess.Popen(
            [sys.executable, "-c", batch.START, *arguments, "--quiet", *(("--limit", "1") if options.copies else ())],
            cwd=batch.ROOT,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **batch.KEY},
        )
        while process.poll() is None:
            time.sleep(1)
            held = sum(shared for shared, _ in batch.megabytes(process.pid).values())
            samples.append((done(run), batch.core_seconds(process.pid), held))
    if process.returncode:
        raise SystemExit(f"the batch ended with {process.returncode}")
    samples = [sample for sample in samples if sample[2]]
    early = [sample for sample in samples if units / 10 <= sample[0] <= units / 5] or samples[:1]
    late = [sample for sample in samples if 0.9 * units <= sample[0] < units] or samples[-1:]
    highest = [max(memory for _, _, memory in part) for part in (early, late, samples)]
    planned = max((sample for sample in samples if not sample[0]), default=(0, 0.0, 0.0))
    print(f"before the first unit: CPU {planned[1]:.1f} s, {planned[2]:.0f} MB")
    print(
        f"memory at a tenth {highest[0]:.0f} MB, at the last units {highest[1]:.0f} MB: {highest[1] / highest[0]:.2f} ×"
    )
    print(f"peak {highest[2]:.0f} MB, with the summary once all is judged; CPU {samples[-1][1]:.0f} s in all")
    paces = [pace(part) for part in (early, late)]
    if all(paces):
        first, last = paces
        print(f"CPU a unit at a tenth {first * 1000:.1f} ms, at the end {last * 1000:.1f} ms: {last / first:.2f} ×")
    size = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
    own = sum(file.stat().st_size for file in run.glob("run.sqlite*"))
    seconds = time.perf_counter() - started
    print(f"run folder {size / units:.0f} bytes a unit, the database {own / units:.0f} of them; {seconds:.0f} s in all")


def pace(part: list[tuple[int, float, float]]) -> float:
    """Return the core-seconds a unit took in a part of the run; 0 if too little was seen of it."""
    (first, began, _), (last, ended, _) = part[0], part[-1]
    return (ended - began) / (last - first) if last > first else 0.0


def done(run: Path) -> int:
    """Return how many units a run holds at this moment."""
    try:
        with closing(sqlite3.connect(f"file:{run / 'run.sqlite'}?mode=ro", uri=True, timeout=1)) as opened:
            return int(opened.execute("SELECT coalesce(max(unit), 0) FROM units").fetchone()[0])
    except sqlite3.Error:
        return 0


def copy_answers(manifest: Path, folder: Path) -> None:
    """Answer every edit after the first with copies of the first one's rows, through the functions of the store."""
    from editloupe.cli.judge_options import JudgeOptions
    from editloupe.evals.batch.planner import EditFiles
    from editloupe.evals.manifests.layouts import load_manifest
    from editloupe.evals.runs.edit_rows import NewEdit, hash_content, upsert_edit
    from editloupe.evals.runs.schema import UNIT_COLUMNS
    from editloupe.evals.runs.store import Run
    from editloupe.evals.runs.unit_rows import JudgementRows, write_judgement
    from editloupe.rubrics.dlebench import DLEBENCH

    os.environ.update(batch.KEY)
    options = JudgeOptions(judge="openai:bench", base_url=NOWHERE, mode="plain", tool_calls="native")
    edits = enumerate(load_manifest(manifest))
    _, first = next(edits)
    with options.open() as judge, Run.write(folder) as run, run.reader() as reader:
        units = [
            dict(zip(UNIT_COLUMNS, row, strict=True))
            for row in reader.connection.execute(f"SELECT {', '.join(UNIT_COLUMNS)} FROM units ORDER BY unit")
        ]
        steps = reader.connection.execute("SELECT seconds, step FROM steps ORDER BY trace, position").fetchall()
        heads = reader.connection.execute("SELECT target, seconds, head FROM traces ORDER BY unit").fetchall()
        texts = [text for (text,) in reader.connection.execute("SELECT text FROM texts")]
        replies = reader.connection.execute("SELECT reply, kept_at FROM replies").fetchall()
        while some := list(itertools.islice(edits, AT_ONCE)):
            with run.transaction() as connection:
                for position, edit in some:
                    files = EditFiles(edit)
                    for path, sha in files.hashes.items():
                        picture = run.pictures.folder / sha[:2] / f"{sha}.jpg"
                        picture.parent.mkdir(parents=True, exist_ok=True)
                        if not picture.exists():
                            os.link(str(path), picture)
                    content = hash_content(edit, files.hashes)
                    new = NewEdit(edit, position, content, files.stamps, files.pictures)
                    own, traces = [], {}
                    for unit, head, step in zip(units, heads, steps, strict=True):
                        criterion = unit["criterion"]
                        answer = DLEBENCH.rubric(criterion).answer
                        label = answer.labels[position // 2 % len(answer.labels)].name
                        question = judge.question_key(edit, criterion, files.hashes)
                        own.append(
                            {
                                **unit,
                                "shown": question.shown,
                                "label": label,
                                "score": answer.score(label),
                                "score_100": answer.score_100(label),
                                "outcome": unit["outcome"].replace(unit["label"], label),
                            }
                        )
                        traces[criterion] = [((*head[:2], head[2].replace(first.id, edit.id)), [step])]
                    own_texts = [text.replace(first.instruction, edit.instruction) for text in texts]
                    number = upsert_edit(connection, new, run._without_secrets)
                    write_judgement(connection, JudgementRows(new, own, own_texts, traces), number, {})
                    rows = [(f"{edit.id}-{n}", edit.id, *reply) for n, reply in enumerate(replies)]
                    connection.executemany("INSERT INTO replies VALUES (?, ?, ?, ?)", rows)
            run.checkpoint()


if __name__ == "__main__":
    main()
