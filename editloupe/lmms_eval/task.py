"""Tasks for lmms-eval whose model edits pictures and whose judge is EditLoupe.

Settings are environment variables. `EDITLOUPE_` and a layout in capitals is the folder of that benchmark. `EDITLOUPE_JUDGE` is
the judge, `EDITLOUPE_BASE_URL` its server, `EDITLOUPE_MODE` its mode and `EDITLOUPE_MODEL` the editing model. `EDITLOUPE_RUNS` is
the folder of the runs that store verdicts, one run per task.
"""

from __future__ import annotations

import atexit
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict  # type: ignore[import-not-found,unused-ignore]
from lmms_eval.api.task import ConfigurableTask  # type: ignore[import-not-found,unused-ignore]
from PIL import Image

from editloupe._util.loop_thread import LoopThread
from editloupe.evals.manifests.layouts import load_cases
from editloupe.judge import Judge
from editloupe.judge.edit_score import EditScore, explain_outcome, score_edit
from editloupe.pictures.decode import Album, open_picture
from editloupe.rubrics.registry import get_protocol
from editloupe.servers.reward.scoring import JudgementRun
from editloupe.types import Edit, Unjudged, UserError

INPUTS = "inputs"
"""The role of further pictures that the editing model is given."""
RUNS = "runs/lmms-eval"
NO_PICTURE = Path("the model's output")
"""Path of the edited picture if the output holds none; the file does not exist, and the error names it."""


class EditTask(ConfigurableTask):  # type: ignore[misc,unused-ignore]
    """A benchmark of edits.

    An output is JSON with `images`, a list of paths, as editing models of lmms-eval write it. Its metrics are `score`, each
    criterion (0 to 100) and `unjudged`, the number of edits without a score. An edit that could not be judged has
    `valid: False` and no score; it is in no mean. Verdicts are stored in a run, so that nothing is judged twice and
    `editloupe report` prints the paper's tables.

    Args:
        config: The task's YAML. `dataset_kwargs.layout` names the protocol, `dataset_kwargs.folder` the benchmark's folder if
            no variable does.
        model_name: The model's name in lmms-eval.

    Raises:
        UserError: The benchmark or the judge cannot be opened.
    """

    def __init__(self, config: dict[str, Any] | None = None, model_name: str | None = None) -> None:
        settings = {name: value for name, value in (config or {}).items() if name != "class"}
        protocol = get_protocol(settings["dataset_kwargs"]["layout"])
        means = dict.fromkeys(("score", *protocol.criteria), average)
        settings["metric_list"] = [
            {"metric": name, "aggregation": function, "higher_is_better": name != "unjudged"}
            for name, function in {**means, "unjudged": count_unjudged}.items()
        ]
        # Says that the metrics are the task's own. Not the method: lmms-eval copies its settings, and a judge cannot be copied.
        settings["process_results"] = build_records
        self._edits: dict[str, Edit] = {}
        self._judge = Judge(
            protocol=protocol.name,
            base_url=os.environ.get("EDITLOUPE_BASE_URL"),
            mode=os.environ.get("EDITLOUPE_MODE"),  # type: ignore[arg-type]
        )
        self._run: JudgementRun | None = None
        self._loop = LoopThread("editloupe-lmms-eval")
        super().__init__(config=settings, model_name=model_name)
        atexit.register(self.close)

    def download(self, dataset_kwargs: Mapping[str, Any] | None = None) -> None:
        """Read the benchmark's edits from its folder."""
        settings = dict(dataset_kwargs or {})
        layout = str(settings["layout"])
        variable = f"EDITLOUPE_{layout.upper()}"
        folder = os.environ.get(variable) or settings.get("folder")
        if not folder:
            raise UserError(f"set the variable {variable} to the folder of the benchmark")
        with tempfile.TemporaryDirectory(prefix="editloupe-") as outputs:
            edits = list(load_cases(folder, layout, Path(outputs)))
        if not edits:
            raise UserError(f"{folder} has no edits")
        model = os.environ.get("EDITLOUPE_MODEL") or None
        self._edits = {edit.id: edit.model_copy(update={"model": model}) for edit in edits}
        rows = [
            {"edit_id": edit.id, "instruction": edit.instruction, "instruction_type": edit.instruction_type}
            for edit in edits
        ]
        self.dataset = self.dataset_no_image = DatasetDict({"test": Dataset.from_list(rows)})

    def doc_to_text(self, doc: Mapping[str, Any], *_: Any) -> str:
        """Return the instruction."""
        return str(doc["instruction"])

    def doc_to_visual(self, doc: Mapping[str, Any], *_: Any) -> list[Image.Image]:
        """Return the source, and the further pictures of an edit of several."""
        edit = self._edits[doc["edit_id"]]
        sources = (edit.source, *edit.more_images.get(INPUTS, ()))
        return [Image.fromarray(open_picture(source).pixels) for source in sources]

    def process_results(self, doc: Mapping[str, Any], results: Sequence[Any], full_docs: Any = None) -> dict[str, Any]:
        """Judge a model's output and return one record per metric."""
        edit = self._edits[doc["edit_id"]]
        output = find_picture(results[0] if results else None)
        edit = edit.model_copy(update={"edited": output or NO_PICTURE})
        return build_records(edit, self._loop.run(self._score(edit)), self._judge.criteria)

    async def _score(self, edit: Edit) -> EditScore:
        """Return the score from stored verdicts, and judge what is missing."""
        run = self._open_run()
        stored = await run.find_stored(edit)
        missing = [name for name in self._judge.criteria_for(edit) if name not in stored]
        new = {}
        if missing:
            album = Album()
            try:
                judgement = await self._judge.ajudge(edit, criteria=missing, strict=False, album=album)
                await run.save(judgement, album)
            finally:
                album.clear()
            new = {outcome.criterion: outcome for outcome in judgement.verdicts}
        verdicts = {**stored, **new}
        return score_edit(self._judge, edit, [verdicts[name] for name in self._judge.criteria if name in verdicts])

    def _open_run(self) -> JudgementRun:
        if self._run is None:
            rank = os.environ.get("RANK", "0")
            name = f"{self.config.task}-{rank}" if rank != "0" else str(self.config.task)
            self._run = JudgementRun(Path(os.environ.get("EDITLOUPE_RUNS") or RUNS) / name, self._judge)
        return self._run

    def close(self) -> None:
        """Close the run and the judge. Can be called again."""
        if self._run is not None:
            self._run.close()
            self._run = None
        self._loop.close()
        self._judge.close()


def find_picture(output: Any) -> Path | None:
    """Return the last picture in a model's output: JSON with `images`, or a path; None if there is none.

    >>> find_picture('{"text": "", "images": ["a.png", "b.png"]}')
    PosixPath('b.png')
    """
    try:
        record = json.loads(output)
    except (TypeError, ValueError, RecursionError):
        record = output
    images = record.get("images") if isinstance(record, dict) else record
    paths = [
        Path(image) for image in (images if isinstance(images, list) else [images]) if isinstance(image, str) and image
    ]
    return next((path for path in reversed(paths) if _is_file(path)), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a text that is too long for a path, a NUL
        return False


def build_records(edit: Edit, score: EditScore, criteria: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return one record per metric; without `score` if the edit or the criterion could not be judged."""
    about = {"edit_id": edit.id, "instruction_type": edit.instruction_type}
    records: dict[str, dict[str, Any]] = {"unjudged": {**about, "valid": score.score is not None}}
    verdicts = {verdict.criterion: verdict for verdict in score.verdicts}
    values = {"score": score.score, **{name: score.criterion(name) for name in criteria if name in verdicts}}
    for name, value in values.items():
        if value is not None:
            records[name] = {**about, "valid": True, "score": 100 * value}
            continue
        verdict = verdicts.get(name)
        why = explain_outcome(verdict) if isinstance(verdict, Unjudged) else score.explanation or str(score.why)
        records[name] = {**about, "valid": False, "reason": why}
    return records


def average(records: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean score of what was judged, NaN if nothing was."""
    scores = [float(record["score"]) for record in records if record["valid"]]
    return sum(scores) / len(scores) if scores else float("nan")


def count_unjudged(records: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of edits without a score."""
    return sum(not record["valid"] for record in records)
