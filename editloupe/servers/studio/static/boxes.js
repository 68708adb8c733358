// Target boxes that can be drawn, moved, resized and typed; always in whole pixels of the source.

const SVG = "http://www.w3.org/2000/svg";
const CORNERS = [[0, 1], [2, 1], [0, 3], [2, 3]];

export class BoxDrawing {
  constructor(viewer) {
    this.viewer = viewer;
    this.active = false;
    this.changed = () => {};
  }

  toggle(on = !this.active) {
    this.active = on;
    this.viewer.root.classList.toggle("drawing", on);
    this.viewer.root.querySelector("[data-toggle-draw]").setAttribute("aria-pressed", String(on));
    if (on && !this.viewer.shown) this.viewer.toggleBoxes();
    if (on && this.viewer.mode !== "side") this.viewer.setMode("side");
    this.viewer.draw();
  }

  // Handles on a box; a drag on one of them resizes, a drag on the box moves it.
  decorate(group, number, box, frame) {
    if (!this.active) return;
    group.classList.add("editable");
    group.dataset.box = number;
    this.scale = [frame.x, frame.y];
    // Handles stand outside the corners, and are smaller on a small box: what is marked stays in sight.
    const small = Math.min((box[2] - box[0]) * frame.x, (box[3] - box[1]) * frame.y);
    const radius = Math.max(3.5, Math.min(6, small / 4));
    CORNERS.forEach(([x, y], corner) => {
      const handle = document.createElementNS(SVG, "circle");
      handle.setAttribute("class", "grip");
      handle.setAttribute("cx", frame.left + box[x] * frame.x + (x === 0 ? -radius : radius));
      handle.setAttribute("cy", frame.top + box[y] * frame.y + (y === 1 ? -radius : radius));
      handle.setAttribute("r", radius);
      handle.dataset.corner = corner;
      group.append(handle);
    });
  }

  // The corner a point lies at, within a few pixels of the screen and a quarter of the box.
  #cornerAt(point, box) {
    const near = (axis) => Math.min(5 / this.scale[axis], (box[2 + axis] - box[axis]) / 4);
    const found = CORNERS.findIndex(([x, y]) => Math.abs(point[0] - box[x]) <= near(0) && Math.abs(point[1] - box[y]) <= near(1));
    return found < 0 ? undefined : found;
  }

  // Takes over a press on the source while drawing is on; says whether it did.
  begin(event) {
    if (!this.active || this.viewer.roleAt(event) !== "source") return false;
    const viewer = this.viewer;
    const [width, height] = viewer.size;
    const point = (at) => { const [x, y] = viewer.place(at); return [clamp(x * width, width), clamp(y * height, height)]; };
    const start = point(event);
    const boxes = viewer.targets.map((box) => [...box]);
    const on = event.target.closest(".editable");
    const number = on ? Number(on.dataset.box) : boxes.length;
    const before = on ? boxes[number] : null;
    const corner = event.target.dataset?.corner ?? (on ? this.#cornerAt(start, before) : undefined);
    const move = (at) => {
      const now = point(at);
      let box;
      if (!on) box = spanned(start, now);
      else if (corner !== undefined) {
        const [x, y] = CORNERS[corner];
        box = spanned([before[2 - x], before[4 - y]], now);
      } else box = shifted(before, now[0] - start[0], now[1] - start[1], width, height);
      const all = boxes.map((one) => [...one]);
      all[number] = box;
      viewer.setTargets(all.filter(Boolean));
    };
    const end = () => {
      viewer.stage.removeEventListener("pointermove", move);
      viewer.stage.removeEventListener("pointerup", end);
      viewer.stage.removeEventListener("pointercancel", end);
      const kept = viewer.targets.filter(([x1, y1, x2, y2]) => x2 - x1 >= 2 && y2 - y1 >= 2);
      viewer.setTargets(kept);
      if (JSON.stringify(kept) !== JSON.stringify(boxes)) this.changed(kept);
    };
    viewer.stage.setPointerCapture(event.pointerId);
    viewer.stage.addEventListener("pointermove", move);
    viewer.stage.addEventListener("pointerup", end);
    viewer.stage.addEventListener("pointercancel", end);
    return true;
  }
}

function clamp(value, most) { return Math.round(Math.max(0, Math.min(most, value))); }

function spanned([ax, ay], [bx, by]) { return [Math.min(ax, bx), Math.min(ay, by), Math.max(ax, bx), Math.max(ay, by)]; }

function shifted([x1, y1, x2, y2], dx, dy, width, height) {
  const x = Math.max(-x1, Math.min(width - x2, dx));
  const y = Math.max(-y1, Math.min(height - y2, dy));
  return [x1 + x, y1 + y, x2 + x, y2 + y];
}

// The same boxes as a list of four numbers each, for the keyboard; keeps list and viewer alike.
export function connectBoxList(viewer, list, add, changed) {
  const fill = () => {
    list.replaceChildren(...viewer.targets.map((box, number) => item(box, number)));
    list.hidden = !viewer.targets.length;
  };
  const tell = () => { fill(); changed(viewer.targets.map((box) => [...box])); };
  const item = (box, number) => {
    const line = document.createElement("li");
    const field = document.createElement("input");
    field.value = box.join(", ");
    field.inputMode = "numeric";
    field.setAttribute("aria-label", `Target box ${number + 1}: x1, y1, x2, y2 in pixels of the source`);
    field.addEventListener("change", () => {
      const read = field.value.split(/[\s,;]+/).filter(Boolean).map(Number);
      const good = read.length === 4 && read.every(Number.isFinite) && read[2] > read[0] && read[3] > read[1];
      field.setAttribute("aria-invalid", String(!good));
      if (!good) return;
      viewer.setTargets(viewer.targets.map((one, at) => (at === number ? read.map(Math.round) : one)));
      tell();
    });
    const remove = document.createElement("button");
    remove.type = "button";
    remove.className = "quiet";
    remove.textContent = "Remove";
    remove.setAttribute("aria-label", `Remove target box ${number + 1}`);
    remove.addEventListener("click", () => { viewer.setTargets(viewer.targets.filter((_, at) => at !== number)); tell(); });
    line.append(field, remove);
    return line;
  };
  viewer.drawing.changed = tell;
  add?.addEventListener("click", () => {
    const [width, height] = viewer.size;
    viewer.setTargets([...viewer.targets, [0.4 * width, 0.4 * height, 0.6 * width, 0.6 * height].map(Math.round)]);
    tell();
    list.lastElementChild.querySelector("input").select();
  });
  fill();
  return fill;
}
