// Pointer, wheel and keys of the map.

const STEP = 60; // pixels that an arrow key moves
const CLICK = 5; // pixels that a click may move on its way

// `on` has moved(), hovered(row), chosen(row), lassoed(polygon) and lassoing().
export function listen(map, on, signal) {
  const { canvas } = map;
  const pointers = new Map();
  let start = null, spread = 0;
  const at = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  const under = (event) => map.points.nearest(...map.toMap(...at(event)), 12 / map.scale);

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, at(event));
    start = { at: at(event), camera: { ...map.camera }, far: 0 };
    spread = distance(pointers);
    if (pointers.size === 1 && (on.lassoing() || event.shiftKey)) map.lasso = [map.toMap(...at(event))];
    else map.lasso = pointers.size > 1 ? null : map.lasso;
    start.lasso = pointers.size === 1 && (on.lassoing() || event.shiftKey);
  }, { signal });

  canvas.addEventListener("pointermove", (event) => {
    if (!pointers.has(event.pointerId)) return on.hovered(under(event), at(event));
    pointers.set(event.pointerId, at(event));
    const [x, y] = at(event);
    start.far = Math.max(start.far, Math.hypot(x - start.at[0], y - start.at[1]));
    if (start.lasso) {
      map.lasso.push(map.toMap(x, y));
      map.draw();
    } else if (pointers.size === 2) {
      const now = distance(pointers), middle = [...pointers.values()].reduce(([a, b], [c, d]) => [(a + c) / 2, (b + d) / 2]);
      if (spread) map.zoomAt(...middle, now / spread);
      spread = now;
    } else {
      map.look({ x: start.camera.x - (x - start.at[0]) / map.scale, y: start.camera.y - (y - start.at[1]) / map.scale });
    }
    return null;
  }, { signal });

  const end = (event) => {
    if (!pointers.delete(event.pointerId) || !start) return;
    const still = start.far < CLICK; // a lasso that is drawn to its end comes back to where it began
    if (start.lasso && map.lasso.length > 2 && !still) on.lassoed(map.lasso);
    else if (still && event.type === "pointerup") { if (start.lasso) map.lasso = null; const row = under(event); if (row >= 0) on.chosen(row); }
    else on.moved();
    // A finger that stays goes on from where it is.
    start = pointers.size ? { at: [...pointers.values()][0], camera: { ...map.camera }, far: CLICK } : null;
  };
  canvas.addEventListener("pointerup", end, { signal });
  canvas.addEventListener("pointercancel", end, { signal });
  canvas.addEventListener("pointerleave", () => on.hovered(-1), { signal });

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    map.zoomAt(...at(event), Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0018)));
    on.moved();
  }, { signal, passive: false });

  canvas.addEventListener("keydown", (event) => {
    const pan = (dx, dy) => map.look({ x: map.camera.x + (dx * STEP) / map.scale, y: map.camera.y + (dy * STEP) / map.scale });
    const zoom = (factor) => map.zoomAt(map.width / 2, map.height / 2, factor);
    const actions = {
      ArrowLeft: () => pan(-1, 0), ArrowRight: () => pan(1, 0), ArrowUp: () => pan(0, -1), ArrowDown: () => pan(0, 1),
      "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: () => map.look(map.home()), Enter: () => on.listView(),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
    on.moved();
  }, { signal });
}

function distance(pointers) {
  if (pointers.size !== 2) return 0;
  const [[ax, ay], [bx, by]] = [...pointers.values()];
  return Math.hypot(ax - bx, ay - by);
}
