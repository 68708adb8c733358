"""Keep one judgement in a run and read it back step by step.

python examples/read_trace.py runs/example-trace
editloupe trace runs/example-trace rocket-emblem                  # the same in the terminal
"""

import sys
from pathlib import Path

from editloupe import Judge, load_manifest
from editloupe.demo import demo_manifest
from editloupe.evals.runs import Run

EDIT = "rocket-emblem"


def main(out: Path) -> None:
    """Judge one bundled edit, then read its trace from the run."""
    edit = next(edit for edit in load_manifest(demo_manifest()) if edit.id == EDIT)
    with Judge(mode="tools") as judge, Run.write(out) as run:
        run.save(judge(edit), configuration=run.configure(judge.describe()))
    with Run.open(out) as run:
        for trace in run.load_trace(EDIT):
            print(trace.criterion)
            for step in trace.steps:
                print(f"  step {step.index + 1}: {step.thought[:100]}")
                for call in step.calls:
                    print(f"    asked for {call.name} {dict(call.parameters)}")
                for observation in step.observations:
                    print(f"    saw {observation.text[:100]} ({len(observation.pictures)} pictures)")
                if step.answer is not None:
                    print(f"    answered {step.answer}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/example-trace"))
