// The points of the map: where each image is, of which class, and which of them are in a place.

const NONE = 0xffffffff;
const CELLS = 64;

export class Points {
  constructor(buffer, classes, split) {
    const count = buffer.byteLength / 8;
    this.count = count;
    this.places = new Uint16Array(buffer, 0, 2 * count);
    this.classOf = new Uint32Array(buffer, 4 * count, count);
    this.names = classes.map(split);
    this.cells = grid(this);
  }

  x(row) { return this.places[2 * row] / 65535; }
  y(row) { return this.places[2 * row + 1] / 65535; }
  namesOf(row) { return this.classOf[row] === NONE ? [] : this.names[this.classOf[row]]; }

  // For each row the number of its branch among the children of a branch, -1 outside of it.
  colouring(branch) {
    const numberOf = new Map(), ofClass = this.names.map((names) => {
      if (branch.some((name, at) => names[at] !== name)) return -1;
      const child = names[branch.length] ?? "";
      if (!numberOf.has(child)) numberOf.set(child, numberOf.size);
      return numberOf.get(child);
    });
    const groups = [...numberOf.keys()].map((name) => ({ name, count: 0, rows: [] }));
    const group = new Int32Array(this.count);
    for (let row = 0; row < this.count; row++) {
      group[row] = this.classOf[row] === NONE ? -1 : ofClass[this.classOf[row]];
      if (group[row] >= 0) { groups[group[row]].count++; groups[group[row]].rows.push(row); }
    }
    // The largest groups get colours of their own.
    const order = groups.map((_, at) => at).sort((a, b) => groups[b].count - groups[a].count);
    const rank = new Int32Array(groups.length);
    order.forEach((at, place) => { rank[at] = place; });
    for (let row = 0; row < this.count; row++) if (group[row] >= 0) group[row] = rank[group[row]];
    return { group, groups: order.map((at) => groups[at]) };
  }

  // Names of the classes at some depth below a branch and where they are, the largest first.
  named(branch, depth) {
    const key = `${depth} ${branch.join("\0")}`;
    this.known ??= new Map();
    if (!this.known.has(key)) {
      const classes = this.names.map((names) => (names.length >= depth && branch.every((name, at) => names[at] === name) ? names.slice(0, depth).join("\0") : null));
      const rows = new Map();
      for (let row = 0; row < this.count; row++) {
        const path = this.classOf[row] === NONE ? null : classes[this.classOf[row]];
        if (path !== null) { if (!rows.has(path)) rows.set(path, []); rows.get(path).push(row); }
      }
      this.known.set(key, [...rows].sort((a, b) => b[1].length - a[1].length).map(([path, some]) => ({ name: path.split("\0").at(-1), middle: this.middle(some) })));
    }
    return this.known.get(key);
  }

  // The place of a group: the median, which a few images far away do not move.
  middle(rows) {
    const some = rows.length > 999 ? rows.filter((_, at) => at % Math.ceil(rows.length / 999) === 0) : rows;
    const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
    return [median(some.map((row) => this.x(row))), median(some.map((row) => this.y(row)))];
  }

  bounds(rows) {
    let [left, top, right, bottom] = [1, 1, 0, 0];
    for (const row of rows) {
      left = Math.min(left, this.x(row)); right = Math.max(right, this.x(row));
      top = Math.min(top, this.y(row)); bottom = Math.max(bottom, this.y(row));
    }
    return { left, top, right, bottom };
  }

  *inBox({ left, top, right, bottom }) {
    const cell = (value) => Math.min(CELLS - 1, Math.max(0, Math.floor(value * CELLS)));
    for (let down = cell(top); down <= cell(bottom); down++) {
      for (let across = cell(left); across <= cell(right); across++) {
        for (const row of this.cells[down * CELLS + across]) {
          const x = this.x(row), y = this.y(row);
          if (x >= left && x <= right && y >= top && y <= bottom) yield row;
        }
      }
    }
  }

  nearest(x, y, reach) {
    let best = -1, least = reach * reach;
    for (const row of this.inBox({ left: x - reach, right: x + reach, top: y - reach, bottom: y + reach })) {
      const far = (this.x(row) - x) ** 2 + (this.y(row) - y) ** 2;
      if (far <= least) { best = row; least = far; }
    }
    return best;
  }

  // Rows inside a polygon [[x, y], ...]: a ray to the right crosses its border an odd number of times.
  inside(polygon) {
    const xs = polygon.map(([x]) => x), ys = polygon.map(([, y]) => y);
    const box = { left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) };
    return [...this.inBox(box)].filter((row) => within(this.x(row), this.y(row), polygon)).sort((a, b) => a - b);
  }
}

function within(x, y, polygon) {
  let odd = false;
  for (let at = 0, before = polygon.length - 1; at < polygon.length; before = at++) {
    const [ax, ay] = polygon[at], [bx, by] = polygon[before];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) odd = !odd;
  }
  return odd;
}

function grid(points) {
  const cells = Array.from({ length: CELLS * CELLS }, () => []);
  for (let row = 0; row < points.count; row++) {
    const across = Math.min(CELLS - 1, Math.floor(points.x(row) * CELLS)), down = Math.min(CELLS - 1, Math.floor(points.y(row) * CELLS));
    cells[down * CELLS + across].push(row);
  }
  return cells;
}

// A polygon for the address: whole thousandths, few corners.
export const areaText = (polygon) => thin(polygon).map(([x, y]) => `${Math.round(1000 * x)}.${Math.round(1000 * y)}`).join("_");
export function areaOf(text) {
  const corners = text.split("_").map((one) => one.split(".").map((part) => Number.parseInt(part, 10) / 1000));
  return corners.length > 2 && corners.every(([x, y]) => Number.isFinite(x) && Number.isFinite(y)) ? corners : null;
}
const thin = (polygon) => polygon.filter((_, at) => at % Math.ceil(polygon.length / 48) === 0);
