"""Judge one picture as EdiVal-Agent does: ground → (rule | ask)*, compare, measure → conclude.

Instruction following, consistency and quality run concurrently. A rule decides from boxes; a question to an LMM is a run of the
loop about a crop. Every look is a step with calls and observations, so its trace has the same form as any other.
`judge_by_objects` is the engine that judges a single edit in this way.
"""

from __future__ import annotations

import asyncio
import operator
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal
from weakref import WeakKeyDictionary

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, Send
from typing_extensions import TypedDict  # pydantic makes no schema of typing's own before Python 3.12

from editloupe.agent.replies.answers import ParsedAnswer
from editloupe.graphs.edival_observations import (
    EdivalContext,
    ObjectDetection,
    compare,
    crop_object,
    detect,
    detection_step,
    measure,
)
from editloupe.graphs.loop import LOOP, CaseContext, CaseResult, Failure, Graph, initial_state, prompt_texts, sum_usage
from editloupe.pictures.pixels import ImageError
from editloupe.rubrics.case import EDITED, SOURCE, Case
from editloupe.rubrics.edival import consistency
from editloupe.rubrics.edival.pools import BASE, KEY, Turn
from editloupe.rubrics.edival.questions import (
    build_precheck,
    build_question,
    compare_text,
    list_crop_queries,
    shows_both_crops,
)
from editloupe.rubrics.edival.rules import (
    DetectorQuery,
    EdivalSettings,
    Hit,
    decide,
    list_detector_queries,
    load_published,
)
from editloupe.rubrics.edival.tasks import Task
from editloupe.rubrics.model import Rubric
from editloupe.tools.contract import ToolError
from editloupe.tools.models.detectors import Finder, WholePictureFinder
from editloupe.tools.registry import Toolbox
from editloupe.types import NOT_APPLICABLE, Edit, Outcome, Reason, Sha, Step, Trace, Unjudged, Usage, Verdict

FOLLOWING, CONSISTENCY, QUALITY = "instruction_following", "content_consistency", "visual_quality"
CRITERIA = (FOLLOWING, CONSISTENCY, QUALITY)
"""EdiVal-IF, EdiVal-CC, EdiVal-VQ."""
BOTH = "detector and lmm"
OF_THE_REPLY = frozenset(
    {Reason.UNREADABLE, Reason.NO_ANSWER, Reason.TRUNCATED, Reason.NOT_UNDERSTOOD, Reason.LOW_CONFIDENCE}
)
"""Failures of the judge's reply. Asking again in the same way would not help."""


@dataclass(frozen=True)
class TaskResult:
    """The result of one instruction."""

    number: int
    success: bool | None
    why: str
    by: str = ""
    """Who decided: `detector`, `lmm`, or both."""
    steps: tuple[Step, ...] = ()
    prompt: tuple[str, ...] = ()
    failure: Failure | None = None


class PictureState(TypedDict, total=False):
    """The state of one picture. It holds hashes, never pixels."""

    edit: Edit
    turn: Turn
    pictures: dict[str, Sha]
    number: int
    """In a branch: the index of the task."""
    hits: dict[DetectorQuery, tuple[Hit, ...]]
    """In a branch: the detector's hits."""
    steps: list[Step]
    """In a branch: the detector's calls."""
    followed: Annotated[list[TaskResult], operator.add]
    outcomes: Annotated[list[Outcome], operator.add]
    traces: Annotated[list[Trace], operator.add]


async def open_pictures(state: PictureState, runtime: Runtime[EdivalContext]) -> PictureState:
    """Open the picture before, the picture after and the base picture of the chain."""
    context, edit = runtime.context, state["edit"]
    album = context.shared.album
    paths = {SOURCE: edit.source, EDITED: edit.edited, BASE: edit.more_images.get(BASE, (edit.source,))[0]}
    try:
        opened = {name: await asyncio.to_thread(album.open, path) for name, path in paths.items()}
    except ImageError as error:
        if context.shared.strict:
            raise
        unusable = [Unjudged(criterion=name, reason=Reason.BAD_IMAGE, detail=str(error)) for name in context.criteria]
        return PictureState(outcomes=[*unusable])
    return PictureState(pictures={name: picture.sha for name, picture in opened.items()})


def branch(state: PictureState, runtime: Runtime[EdivalContext]) -> list[Send] | str:
    """Start a branch per task and per measurement."""
    if state.get("outcomes"):
        return END
    criteria = runtime.context.criteria
    branch_state = PictureState(edit=state["edit"], turn=state["turn"], pictures=state["pictures"])
    tasks = range(len(state["turn"].tasks)) if FOLLOWING in criteria else ()
    ways = [Send("ground", {**branch_state, "number": number}) for number in tasks]
    ways += [Send("compare", branch_state)] if CONSISTENCY in criteria else []
    ways += [Send("measure", branch_state)] if QUALITY in criteria else []
    return ways


async def ground(state: PictureState, runtime: Runtime[EdivalContext]) -> Command[Literal["rule", "ask", "conclude"]]:
    """Run the detector for one task, then continue with the task's rule or question."""
    context, number = runtime.context, state["number"]
    task = state["turn"].tasks[number]
    try:
        detections = await asyncio.to_thread(_detections, context, state, task)
    except ToolError as error:
        failure = Failure(Reason.MODEL_ERROR, f"the detector could not be used: {error}")
        return Command(
            goto="conclude",
            update={"followed": [TaskResult(number, None, failure.detail, "detector", failure=failure)]},
        )
    steps = [detection_step(0, f"{task.type}: {state['turn'].sentence(number)}", detections)] if detections else []
    context.tell(context.heading(state["edit"], FOLLOWING), steps)
    hits = {detection.query: detection.hits for detection in detections}
    return Command(goto=Send("rule" if task.by_detector else "ask", {**state, "hits": hits, "steps": steps}))


def _detections(context: EdivalContext, state: PictureState, task: Task) -> list[ObjectDetection]:
    """Run the detector for all queries of a rule, or until the object of a question is found."""
    threshold = context.rules.threshold_of(task.type)
    name_after = state["turn"].name_after(state["number"])
    queries = list_detector_queries(task, context.rules) or list_crop_queries(task, name_after)
    both = not task.by_detector and shows_both_crops(task, context.rules)
    done: list[ObjectDetection] = []
    has_object = False
    for query in queries:
        if both and has_object and query.when == "after":
            continue
        name = SOURCE if query.when == "before" else EDITED
        picture = context.shared.album[state["pictures"][name]]
        done.append(detect(context, query, name, picture, threshold, len(done), show=True))
        has_object = has_object or bool(done[-1].hits)
        if has_object and not task.by_detector and not both:
            break
    return done


async def rule(state: PictureState, runtime: Runtime[EdivalContext]) -> PictureState:
    """Decide one task by its boxes. If its type has a pre-check, an LMM must agree.

    Boxes cost nothing, so the LMM is only asked if the boxes pass.
    """
    context, number = runtime.context, state["number"]
    task = state["turn"].tasks[number]
    finding = decide(task, state["hits"], context.rules)
    last = Step(index=len(state["steps"]), thought=f"By the boxes: {finding.why}.", answer=_word(finding.success))
    context.tell(context.heading(state["edit"], FOLLOWING), [last])
    steps = (*state["steps"], last)
    if not finding.success or task.type not in context.rules.precheck:
        return PictureState(followed=[TaskResult(number, finding.success, finding.why, "detector", steps)])
    pictures = {name: state["pictures"][name] for name in (SOURCE, EDITED)}
    answered = await _ask_lmm(LOOP, context, state, build_precheck(task, context.worded), pictures)
    steps = (*steps, *answered.steps)
    if answered.failure:
        followed = TaskResult(number, None, answered.why, BOTH, steps, answered.prompt, answered.failure)
    elif answered.success:
        followed = TaskResult(number, True, f"{finding.why}; the LMM agrees", BOTH, steps, answered.prompt)
    else:
        why = f"the LMM does not see what the boxes say ({finding.why}): {answered.why}"
        followed = TaskResult(number, False, why, BOTH, steps, answered.prompt)
    return PictureState(followed=[followed])


async def ask(state: PictureState, runtime: Runtime[EdivalContext]) -> PictureState:
    """Ask an LMM about the crop of one task. Its steps follow those of the detector."""
    context, number = runtime.context, state["number"]
    task = state["turn"].tasks[number]
    hit = next((hits[0] for hits in state["hits"].values() if hits), None)
    crop = await asyncio.to_thread(crop_object, context, context.shared.album[state["pictures"][EDITED]], hit)
    pictures = {EDITED: crop}
    if both := shows_both_crops(task, context.rules):
        old = next((hits[0] for query, hits in state["hits"].items() if hits and query.when == "before"), hit)
        source = context.shared.album[state["pictures"][SOURCE]]
        pictures = {SOURCE: await asyncio.to_thread(crop_object, context, source, old), EDITED: crop}
    answered = await _ask_lmm(LOOP, context, state, build_question(task, context.worded, both), pictures)
    steps = [*state["steps"], *answered.steps]
    success, why = answered.success, answered.why
    if task.type == "text_change" and answered.given:
        finding = compare_text(str(answered.given.values["text"]), task, hit is not None, context.rules)
        steps.append(Step(index=len(steps), thought=f"Compared: {finding.why}.", answer=_word(finding.success)))
        success, why = finding.success, finding.why
    return PictureState(
        followed=[TaskResult(number, success, why, "lmm", tuple(steps), answered.prompt, answered.failure)]
    )


@dataclass(frozen=True)
class LmmAnswer:
    """The answer of an LMM to one question."""

    given: ParsedAnswer | None
    success: bool | None
    why: str
    steps: tuple[Step, ...]
    prompt: tuple[str, ...]
    failure: Failure | None


async def _ask_lmm(
    loop: Graph, context: EdivalContext, state: PictureState, rubric: Rubric, pictures: Mapping[str, Sha]
) -> LmmAnswer:
    """Run the loop for one question about one task. The node passes the loop, so that LangGraph draws it inside."""
    edit, turn = state["edit"], state["turn"]
    sentence = turn.sentence(state["number"])
    about = edit if len(turn.tasks) == 1 else edit.model_copy(update={"instruction": sentence})
    case = Case(edit=about, rubric=rubric, mode="tools", pictures=pictures)
    case_context = CaseContext(context.shared, case, context.heading(edit, FOLLOWING))
    start = await asyncio.to_thread(initial_state, case_context)
    end = await loop.ainvoke(start, {"recursion_limit": context.shared.limits.recursion_limit}, context=case_context)
    steps, prompt = tuple(end["steps"]), prompt_texts(start)
    answer, failure = end["given"], end["failure"]
    if answer is None or failure:
        failure = failure or Failure(Reason.NO_ANSWER, "the judge gave no answer")
        return LmmAnswer(None, None, failure.detail, steps, prompt, failure)
    return LmmAnswer(answer, answer.score == 1.0, steps[-1].thought, steps, prompt, None)


async def compare_pictures(state: PictureState, runtime: Runtime[EdivalContext]) -> PictureState:
    """Measure the consistency of what should not have changed."""
    context, turn, album = runtime.context, state["turn"], runtime.context.shared.album
    base, edited = album[state["pictures"][BASE]], album[state["pictures"][EDITED]]
    heading, started = context.heading(state["edit"], CONSISTENCY), time.perf_counter()
    try:
        consistent = await asyncio.to_thread(compare, context, base, edited, turn.all, turn.unchanged, turn.background)
    except ToolError as error:
        return PictureState(outcomes=[_make_unjudged(CONSISTENCY, error)])
    context.tell(heading, consistent.steps)
    values = consistent.values
    score = consistency(values["object"], values["background"])
    trace = heading.model_copy(update={"steps": consistent.steps, "seconds": time.perf_counter() - started})
    label, rationale = None, consistent.steps[-1].observations[0].text
    if values["object_l1"] is None and values["background_l1"] is None:  # Section O.4: None, left out of means
        label = NOT_APPLICABLE
        rationale = f"No unchanged object was found in the base picture and the background is not compared. {rationale}"
    verdict = Verdict(
        criterion=CONSISTENCY,
        label=label,
        score=score,
        score_100=None if score is None else 100 * score,
        values=values,
        rationale=rationale,
        steps=len(consistent.steps),
    )
    return PictureState(outcomes=[verdict], traces=[trace])


async def measure_picture(state: PictureState, runtime: Runtime[EdivalContext]) -> PictureState:
    """Measure the quality of the picture."""
    context, album = runtime.context, runtime.context.shared.album
    base, edited = album[state["pictures"][BASE]], album[state["pictures"][EDITED]]
    heading, started = context.heading(state["edit"], QUALITY), time.perf_counter()
    try:
        values, step = await asyncio.to_thread(measure, context, base, edited)
    except ToolError as error:
        return PictureState(outcomes=[_make_unjudged(QUALITY, error)])
    context.tell(heading, [step])
    trace = heading.model_copy(update={"steps": (step,), "seconds": time.perf_counter() - started})
    text = step.observations[0].text
    verdict = Verdict(criterion=QUALITY, score=values["hps"], score_100=None, values=values, rationale=text, steps=1)
    return PictureState(outcomes=[verdict], traces=[trace])


async def conclude(state: PictureState, runtime: Runtime[EdivalContext]) -> PictureState:
    """Merge the results of the instructions into one outcome."""
    results = sorted(state.get("followed", []), key=lambda result: result.number)
    if not results:
        return PictureState()
    context = runtime.context
    steps = _renumber([step for result in results for step in result.steps])
    heading = context.heading(state["edit"], FOLLOWING)
    seconds = sum(step.seconds + sum(observation.seconds for observation in step.observations) for step in steps)
    prompt = tuple(dict.fromkeys(text for result in results for text in result.prompt))
    trace = heading.model_copy(update={"steps": steps, "prompt": prompt, "seconds": seconds})
    return PictureState(outcomes=[decide_following(results, state["turn"], steps)], traces=[trace])


def decide_following(results: Sequence[TaskResult], turn: Turn, steps: Sequence[Step]) -> Outcome:
    """Return EdiVal-IF of one picture: yes if every instruction was followed.

    One instruction that was not followed decides, even if the judge's replies on others could not be used. A failure for any
    other reason leaves the picture unjudged, so that the same command tries it again.
    """
    usage = sum((sum_usage(list(result.steps)) for result in results), Usage())
    failed = any(result.success is False for result in results)
    for result in results:
        if result.failure and not (failed and result.failure.reason in OF_THE_REPLY):
            is_of_one = (
                len(results) > 1 and result.failure.reason != Reason.BUDGET
            )  # a cap concerns no single instruction
            where = f"instruction {result.number + 1}: " if is_of_one else ""
            return Unjudged(
                criterion=FOLLOWING,
                reason=result.failure.reason,
                detail=where + result.failure.detail,
                raw=result.failure.raw,
                usage=usage,
                steps=len(steps),
            )
    success = all(result.success for result in results)
    values = {
        "types": [task.type for task in turn.tasks],
        "follows": [result.success for result in results],
        "by": [result.by for result in results],
        "why": [result.why for result in results],
    }
    return Verdict(
        criterion=FOLLOWING,
        label=_word(success),
        score=float(success),
        score_100=100.0 * success,
        values=values,
        rationale=" ".join(result.why for result in results),
        usage=usage,
        steps=len(steps),
    )


def _make_unjudged(criterion: str, error: ToolError) -> Unjudged:
    return Unjudged(criterion=criterion, reason=Reason.MODEL_ERROR, detail=str(error))


def _renumber(steps: Sequence[Step]) -> tuple[Step, ...]:
    return tuple(step.model_copy(update={"index": index}) for index, step in enumerate(steps))


def _word(success: bool) -> str:
    return "yes" if success else "no"


def build_edival_graph() -> CompiledStateGraph[PictureState, EdivalContext, PictureState, PictureState]:
    """Return the compiled graph of one picture."""
    graph = StateGraph(PictureState, context_schema=EdivalContext)
    graph.add_node("open", open_pictures)
    graph.add_node("ground", ground)
    graph.add_node("rule", rule)
    graph.add_node("ask", ask)
    graph.add_node("compare", compare_pictures)
    graph.add_node("measure", measure_picture)
    graph.add_node("conclude", conclude, defer=True)
    graph.add_edge(START, "open")
    graph.add_conditional_edges("open", branch, ["ground", "compare", "measure", END])
    for name in ("rule", "ask", "compare", "measure"):
        graph.add_edge(name, "conclude")
    graph.add_edge("conclude", END)
    return graph.compile(name="editloupe_edival")


EDIVAL_GRAPH = build_edival_graph()


_FINDERS: WeakKeyDictionary[Toolbox, Finder] = WeakKeyDictionary()
_LOCK = threading.Lock()


def find_detector(toolbox: Toolbox, rules: EdivalSettings) -> Finder:
    """Return the detector of a toolbox with the rules' threshold. Its weights are loaded once per toolbox."""
    with _LOCK:
        if toolbox not in _FINDERS:
            _FINDERS[toolbox] = WholePictureFinder(toolbox.settings, rules.lowest_threshold)
        return _FINDERS[toolbox]


async def judge_by_objects(objects: Graph, context: CaseContext) -> CaseResult:
    """Judge a case by objects; the facts of the case name its tasks."""
    case, shared = context.case, context.shared
    rules = shared.rules if isinstance(shared.rules, EdivalSettings) else load_published()
    detecting = EdivalContext(shared, find_detector(shared.toolbox, rules), rules, (FOLLOWING,), worded=case.rubric)
    turn = Turn.model_validate(case.facts[KEY])
    end = await objects.ainvoke({"edit": case.edit, "turn": turn}, {"recursion_limit": 12}, context=detecting)
    (outcome,) = end["outcomes"]
    trace = next(iter(end.get("traces", ())), context.heading)
    if isinstance(outcome, Verdict):
        label = str(outcome.label)
        answer = ParsedAnswer(label, label, outcome.score, outcome.score_100, outcome.values, outcome.rationale)
        return CaseResult(case, trace, answer, None)
    return CaseResult(case, trace, None, Failure(outcome.reason, outcome.detail, outcome.raw))
