// Pictures of the same scene: side by side, and two of them as a slider, blinking, with their difference; zoom and pan go together.

import { onKeys } from "./common.js";
import { BoxDrawing } from "./boxes.js";
import { Loupes } from "./loupes.js";

const SVG = "http://www.w3.org/2000/svg";
const LARGEST = 40;
const BLINK = 650;
const CORNERS_ONLY = 32;
const CLEARANCE = 4;
const REMEMBERED = "editloupe.viewer";

export class Viewer {
  // The signal ends it: a page that shows another edit takes a new viewer.
  constructor(root, signal) {
    this.root = root;
    this.signal = signal;
    this.stage = root.querySelector(".stage");
    this.names = root.querySelector(".pane-names");
    this.panes = {};
    for (const pane of root.querySelectorAll("[data-pane]")) {
      this.panes[pane.dataset.pane] = { pane, picture: pane.querySelector("img"), marks: pane.querySelector(".marks") };
    }
    this.roles = Object.keys(this.panes);
    this.over = this.roles.slice(-2);
    this.shapes = root.querySelectorAll(".shape");
    this.differing = root.querySelector("img.difference");
    this.handle = root.querySelector(".handle");
    this.legend = root.querySelector(".legend");
    this.mode = "side";
    this.zoom = 1;
    this.centre = [0.5, 0.5];
    this.split = 50;
    this.front = this.over[1];
    this.marks = [];
    this.lit = null;
    this.shown = true;
    this.targets = JSON.parse(root.dataset.boxes || "[]");
    this.drawing = "draw" in root.dataset ? new BoxDrawing(this) : null;
    this.#listen();
    this.show(...this.roles.map((role) => root.dataset[role]));
    const strip = root.parentElement.querySelector("[data-loupes]");
    if (strip) this.loupes = new Loupes(this, strip);
    if (!this.drawing) this.#recall();
  }

  // The next picture is shown as the last one was. Where boxes are drawn, the pictures are always side by side at first.
  #recall() {
    let kept = {};
    try { kept = JSON.parse(localStorage.getItem(REMEMBERED)) ?? {}; } catch { /* no storage, or another version's */ }
    if (kept.boxes === false) this.toggleBoxes();
    if (["slider", "blink", "difference"].includes(kept.mode)) this.setMode(kept.mode);
  }

  #remember() {
    if (this.drawing) return;
    try { localStorage.setItem(REMEMBERED, JSON.stringify({ mode: this.mode, boxes: this.shown })); } catch { /* no storage */ }
  }

  // Pictures

  // The pictures in the order of their panes, by hash or address.
  show(...pictures) {
    this.shas = Object.fromEntries(this.roles.map((role, at) => [role, pictures[at]]));
    for (const [role, sha] of Object.entries(this.shas)) {
      const { picture } = this.panes[role];
      if (sha) picture.src = sha.startsWith("/") ? sha : `/pictures/${sha}`;
      else picture.removeAttribute("src");
      picture.addEventListener("load", () => this.draw(), { once: true });
    }
    this.differing.removeAttribute("src");
    this.fit();
    if (this.mode === "difference") this.#loadDifference();
  }

  get size() {
    const { picture } = this.panes.source;
    const { width, height } = this.shapes[0].viewBox.baseVal;
    return picture.naturalWidth ? [picture.naturalWidth, picture.naturalHeight] : [width, height];
  }

  // How a pane's pixels come from the frame: the edited picture is laid into the source's frame, whatever its size.
  frame(role) {
    const { pane, picture } = this.panes[role];
    const [width, height] = this.size;
    const [across, down] = [pane.clientWidth, pane.clientHeight];
    const scale = Math.min(across / width, down / height) * this.zoom;
    const left = across / 2 - this.centre[0] * width * scale;
    const top = down / 2 - this.centre[1] * height * scale;
    const own = [picture.naturalWidth || width, picture.naturalHeight || height];
    return { left, top, width: width * scale, height: height * scale, scale, x: (width * scale) / own[0], y: (height * scale) / own[1] };
  }

  setMode(mode) {
    this.mode = mode;
    this.stage.dataset.mode = this.names.dataset.mode = mode;
    for (const button of this.root.querySelectorAll("[data-view]")) button.setAttribute("aria-pressed", String(button.dataset.view === mode));
    this.handle.hidden = mode !== "slider";
    this.differing.hidden = mode !== "difference";
    clearInterval(this.blinking);
    this.front = this.over[1];
    if (mode === "blink") this.blinking = setInterval(() => { this.front = this.over.find((role) => role !== this.front); this.draw(); }, BLINK);
    if (mode === "difference") this.#loadDifference();
    this.draw();
  }

  chooseMode(mode) {
    if (!this.root.querySelector(`[data-view="${mode}"]`)) return false;
    this.setMode(mode);
    this.#remember();
    return true;
  }

  // Which two of three pictures lie over each other as a slider, or blinking.
  chooseOver(roles) {
    this.over = roles;
    for (const button of this.root.querySelectorAll("[data-over]")) button.setAttribute("aria-pressed", String(button.dataset.over === roles.join(" ")));
    this.setMode(this.mode === "side" ? "slider" : this.mode);
  }

  #loadDifference() {
    const { source, edited } = this.shas;
    if (!source || !edited || this.differing.getAttribute("src")) return;
    const note = this.root.querySelector(".stage-note");
    note.textContent = "Comparing…";
    note.hidden = false;
    this.differing.onload = () => { note.hidden = true; this.draw(); };
    this.differing.onerror = () => { note.textContent = "The difference could not be computed."; };
    this.differing.src = `/pictures/${source}/difference/${edited}`;
  }

  // Zoom and pan

  fit() { this.zoom = 1; this.centre = [0.5, 0.5]; this.draw(); }

  zoomBy(factor, at) {
    const before = this.zoom;
    this.zoom = Math.max(1, Math.min(LARGEST, this.zoom * factor));
    if (at && this.zoom !== before) {
      const share = 1 - before / this.zoom;
      this.centre = [this.centre[0] + (at[0] - this.centre[0]) * share, this.centre[1] + (at[1] - this.centre[1]) * share];
    }
    this.draw();
    return this.zoom !== before;
  }

  panBy(across, down) {
    const { width, height } = this.frame(this.mode === "side" ? this.roles[0] : this.over[1]);
    this.centre = [this.centre[0] - across / width, this.centre[1] - down / height];
    this.draw();
  }

  // Zoom so that a box of the source (in its pixels) fills a good part of the pane.
  focusOn([x1, y1, x2, y2]) {
    const [width, height] = this.size;
    const share = Math.max((x2 - x1) / width, (y2 - y1) / height);
    this.zoom = Math.max(1, Math.min(12, 0.45 / share));
    this.centre = [(x1 + x2) / 2 / width, (y1 + y2) / 2 / height];
    this.draw();
  }

  // Zoom to all targets, or to the measured differences if there is no target; again for the whole picture.
  zoomToTarget() {
    const boxes = this.targets.length ? this.targets : this.loupes?.places ?? [];
    if (!boxes.length) return false;
    if (this.zoom > 1) { this.fit(); return true; }
    const [x1, y1] = [0, 1].map((at) => Math.min(...boxes.map((box) => box[at])));
    const [x2, y2] = [2, 3].map((at) => Math.max(...boxes.map((box) => box[at])));
    this.focusOn([x1, y1, x2, y2]);
    return true;
  }

  // Where on the frame a pointer is, 0 to 1.
  place(event) {
    const role = this.roleAt(event);
    const { pane } = this.panes[role];
    const around = pane.getBoundingClientRect();
    const { left, top, width, height } = this.frame(role);
    return [(event.clientX - around.left - left) / width, (event.clientY - around.top - top) / height];
  }

  roleAt(event) {
    return event.target.closest?.("[data-pane]")?.dataset.pane ?? "source";
  }

  // Boxes

  setTargets(boxes) {
    this.targets = boxes.map((box) => [...box]);
    this.draw();
  }

  setMarks(marks) { this.marks = marks; this.draw(); }

  light(keys) { this.lit = keys; this.draw(); }

  // The stage takes the pictures' shape, as far as the window has room for it; the rest is the style sheet's.
  #shape() {
    const frame = `0 0 ${this.size.join(" ")}`;
    for (const shape of this.shapes) if (shape.getAttribute("viewBox") !== frame) shape.setAttribute("viewBox", frame);
  }

  draw() {
    this.#shape();
    this.#clamp();
    for (const role of this.roles) {
      const { pane, picture } = this.panes[role];
      const out = this.mode !== "side" && !this.over.includes(role);
      pane.classList.toggle("out", out);
      const hidden = out || (this.mode === "blink" && this.front !== role);
      this.names.querySelector(`[data-name="${role}"]`).classList.toggle("off", hidden);
      if (out) continue;
      const frame = this.frame(role);
      place(picture, frame);
      picture.classList.toggle("pixels", frame.scale * (this.size[0] / (picture.naturalWidth || this.size[0])) > 3);
      this.#drawMarks(role, frame);
      pane.classList.toggle("behind", hidden);
      pane.style.clipPath = this.mode === "slider" && role === this.over[1] ? `inset(0 0 0 ${this.split}%)` : "";
    }
    place(this.differing, this.frame("source"));
    this.handle.style.left = `${this.split}%`;
    this.handle.setAttribute("aria-valuenow", String(Math.round(this.split)));
    this.root.querySelector(".zoom-level").textContent = `${Math.round(this.zoom * 100)} %`;
    const kinds = new Set(this.marks.map((mark) => mark.kind));
    if (this.targets.length) kinds.add("target");
    for (const item of this.legend.children) item.hidden = !kinds.has(item.dataset.kind);
    this.legend.hidden = !kinds.size || !this.shown;
  }

  #drawMarks(role, frame) {
    const { marks } = this.panes[role];
    marks.replaceChildren();
    if (!this.shown) return;
    const [width, height] = this.size;
    const own = this.panes[role].picture;
    // Targets are in pixels of the source; on the edited picture they stand at the same share of its size.
    const [toX, toY] = role === "source" ? [1, 1] : [(own.naturalWidth || width) / width, (own.naturalHeight || height) / height];
    this.targets.forEach((box, number) => {
      const here = [box[0] * toX, box[1] * toY, box[2] * toX, box[3] * toY];
      const group = this.#rectangle(marks, here, frame, "target", `target ${number + 1}`, false);
      if (role === "source" && this.drawing) this.drawing.decorate(group, number, here, frame);
    });
    const labelled = new Set();
    for (const mark of this.marks) {
      // A difference is measured in the source and drawn on both pictures.
      const other = mark.kind === "difference" && mark.picture === "source" && role === "edited";
      if (mark.picture !== role && !other) continue;
      // What was asked for and what was shown are two boxes of one call, which is named once.
      const name = `${mark.side}/${mark.step}/${mark.text}`;
      const text = labelled.has(name) ? "" : mark.text;
      labelled.add(name);
      const lit = this.lit !== null && this.lit.has(`${mark.side}/${mark.step}`);
      const box = other ? mark.box.map((value, at) => value * (at % 2 ? toY : toX)) : mark.box;
      const group = this.#rectangle(marks, box, frame, mark.kind, text, lit);
      if (this.lit !== null && !lit) group.classList.add("dim");
    }
  }

  #rectangle(into, [x1, y1, x2, y2], frame, kind, text, lit) {
    const group = document.createElementNS(SVG, "g");
    group.setAttribute("class", `mark ${kind}${lit ? " lit" : ""}`);
    const inner = { x: frame.left + x1 * frame.x, y: frame.top + y1 * frame.y, width: Math.max(2, (x2 - x1) * frame.x), height: Math.max(2, (y2 - y1) * frame.y) };
    // Outlines are outside the box, and those of small boxes are corners: what is marked stays in sight. A box being drawn is exact.
    const room = group.classList.contains("target") && this.drawing?.active ? 0 : CLEARANCE;
    const at = { x: inner.x - room, y: inner.y - room, width: inner.width + 2 * room, height: inner.height + 2 * room };
    const small = room > 0 && Math.min(inner.width, inner.height) < CORNERS_ONLY;
    for (const part of ["halo", "line"]) {
      const shape = document.createElementNS(SVG, small ? "path" : "rect");
      shape.setAttribute("class", small ? `${part} corners` : part);
      if (small) shape.setAttribute("d", corners(at));
      else for (const [name, value] of Object.entries(at)) shape.setAttribute(name, value);
      group.append(shape);
    }
    if (lit && text) {
      const label = document.createElementNS(SVG, "text");
      label.setAttribute("x", at.x + 2);
      label.setAttribute("y", at.y > 16 ? at.y - 5 : at.y + at.height + 14);
      label.textContent = text;
      group.append(label);
    }
    into.append(group);
    return group;
  }

  #clamp() {
    const room = 0.5 / this.zoom;
    this.centre = this.centre.map((value) => Math.max(room, Math.min(1 - room, value)));
  }

  // Listening

  #listen() {
    this.root.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      if (button.dataset.view) this.chooseMode(button.dataset.view);
      if (button.dataset.over) this.chooseOver(button.dataset.over.split(" "));
      if (button.dataset.zoom === "target") this.zoomToTarget();
      else if (button.dataset.zoom === "fit") this.fit();
      else if (button.dataset.zoom) this.zoomBy(button.dataset.zoom === "in" ? 1.6 : 1 / 1.6);
      if ("toggleBoxes" in button.dataset) { this.toggleBoxes(); this.#remember(); }
      if ("toggleDraw" in button.dataset) this.drawing.toggle();
    });
    this.stage.addEventListener("wheel", (event) => {
      const changed = this.zoomBy(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), this.place(event));
      if (changed) event.preventDefault();
    }, { passive: false });
    this.stage.addEventListener("dblclick", (event) => { if (!this.drawing?.active) this.zoomBy(2.5, this.place(event)); });
    this.#listenToPointers();
    this.stage.addEventListener("keydown", (event) => {
      if (event.target === this.handle) return;
      const move = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
      if (move && this.zoom > 1) { this.panBy(...move); event.preventDefault(); }
    });
    this.handle.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -2, ArrowDown: -2, ArrowRight: 2, ArrowUp: 2, Home: -100, End: 100 }[event.key];
      if (by) { this.#splitAt(this.split + by); event.preventDefault(); }
    });
    onKeys({
      s: () => this.chooseMode("side"), l: () => this.chooseMode("slider"), [this.root.dataset.blinkKey ?? "b"]: () => this.chooseMode("blink"), d: () => this.chooseMode("difference"),
      g: () => this.zoomToTarget(),
      "+": () => this.zoomBy(1.6), "=": () => this.zoomBy(1.6), "-": () => this.zoomBy(1 / 1.6), 0: () => this.fit(),
      x: () => { this.toggleBoxes(); this.#remember(); }, t: () => (this.drawing ? this.drawing.toggle() : false),
    }, this.signal);
    const watching = new ResizeObserver(() => this.draw());
    watching.observe(this.stage);
    this.signal?.addEventListener("abort", () => { watching.disconnect(); clearInterval(this.blinking); });
  }

  toggleBoxes() {
    this.shown = !this.shown;
    this.root.querySelector("[data-toggle-boxes]").setAttribute("aria-pressed", String(this.shown));
    this.draw();
  }

  #splitAt(share) { this.split = Math.max(0, Math.min(100, share)); this.draw(); }

  #listenToPointers() {
    const held = new Map();
    let dragged = null;
    const middle = () => [...held.values()].reduce(([x, y], one) => [x + one.x / held.size, y + one.y / held.size], [0, 0]);
    const spread = () => { const [a, b] = [...held.values()]; return Math.hypot(a.x - b.x, a.y - b.y); };
    this.stage.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      if (this.drawing?.begin(event)) return;
      dragged = event.target === this.handle ? "handle" : "pan";
      held.set(event.pointerId, { x: event.clientX, y: event.clientY });
      this.stage.setPointerCapture(event.pointerId);
      this.last = { at: middle(), spread: held.size === 2 ? spread() : 0 };
    });
    this.stage.addEventListener("pointermove", (event) => {
      if (!held.has(event.pointerId)) return;
      held.set(event.pointerId, { x: event.clientX, y: event.clientY });
      const around = this.stage.getBoundingClientRect();
      if (dragged === "handle") { this.#splitAt(((event.clientX - around.left) / around.width) * 100); return; }
      const at = middle();
      this.panBy(at[0] - this.last.at[0], at[1] - this.last.at[1]);
      if (held.size === 2 && this.last.spread) this.zoomBy(spread() / this.last.spread, this.place(event));
      this.last = { at, spread: held.size === 2 ? spread() : 0 };
    });
    for (const end of ["pointerup", "pointercancel"]) {
      this.stage.addEventListener(end, (event) => {
        held.delete(event.pointerId);
        this.last = { at: held.size ? middle() : [0, 0], spread: 0 };
      });
    }
  }
}

// The four corners of a rectangle as a path.
function corners({ x, y, width, height }) {
  const arm = Math.max(4, Math.min(10, Math.min(width, height) / 3));
  const corner = (cx, cy, right, down) => `M${cx + arm * right} ${cy}H${cx}V${cy + arm * down}`;
  return [corner(x, y, 1, 1), corner(x + width, y, -1, 1), corner(x, y + height, 1, -1), corner(x + width, y + height, -1, -1)].join("");
}

function place(picture, { left, top, width, height }) {
  picture.style.width = `${width}px`;
  picture.style.height = `${height}px`;
  picture.style.transform = `translate(${left}px, ${top}px)`;
}

// Steps of a timeline light their boxes in the viewer; Enter or a click on a step's number zooms to them.
export function connectSteps(viewer, place) {
  const gather = () => {
    const marks = [];
    for (const step of place.querySelectorAll(".step")) marks.push(...JSON.parse(step.dataset.marks));
    viewer.setMarks(marks);
  };
  const keys = (step) => new Set(JSON.parse(step.dataset.marks).map((mark) => `${mark.side}/${mark.step}`));
  const over = (event) => {
    const step = event.target.closest(".step");
    viewer.light(step && keys(step).size ? keys(step) : null);
    for (const one of place.querySelectorAll(".step")) one.classList.toggle("lit", one === step);
  };
  // A page that scrolls under a pointer at rest, as the keys make it do, takes the light from no step.
  let rest = "";
  place.addEventListener("pointerover", (event) => {
    const at = `${event.screenX} ${event.screenY}`;
    if (at !== rest) over(event);
    rest = at;
  });
  place.addEventListener("focusin", over);
  place.addEventListener("pointerleave", () => viewer.light(null));
  const zoom = (step) => {
    const marks = JSON.parse(step.dataset.marks).filter((mark) => mark.picture === "source" || mark.picture === "edited");
    if (!marks.length) return;
    viewer.focusOn([Math.min(...marks.map((m) => m.box[0])), Math.min(...marks.map((m) => m.box[1])), Math.max(...marks.map((m) => m.box[2])), Math.max(...marks.map((m) => m.box[3]))]);
  };
  place.addEventListener("click", (event) => { const number = event.target.closest(".step-number"); if (number) zoom(number.closest(".step")); });
  place.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target.matches(".step")) zoom(event.target); });
  gather();
  return gather;
}
