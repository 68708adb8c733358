"""The list of models that lmms-eval reads from every plugin. This plugin has none.

lmms-eval imports this module before it lists the tasks. Version 0.7 lists them before it reads `LMMS_EVAL_PLUGINS`, so this
module adds the folder of the plugin's tasks to those that lmms-eval searches.
"""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import Any

from lmms_eval.tasks import TaskManager  # type: ignore[import-not-found,unused-ignore]

AVAILABLE_MODELS: dict[str, str] = {}
TASKS = str(Path(__file__).with_name("tasks"))

_initialize_tasks = TaskManager.initialize_tasks


@wraps(_initialize_tasks)
def initialize_tasks(self: Any, include_path: str | list[str] | None = None, **options: Any) -> Any:
    """List the tasks, with those of this package."""
    paths = [include_path] if isinstance(include_path, str) else [*(include_path or ())]
    return _initialize_tasks(self, include_path=paths if TASKS in paths else [*paths, TASKS], **options)


TaskManager.initialize_tasks = initialize_tasks
