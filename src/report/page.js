"use strict";
(() => {
  // A click on the head of a column sorts by it; a second one turns the order around.
  const sortBy = (head) => {
    const table = head.closest("table");
    const column = head.cellIndex;
    const isNumber = head.classList.contains("n");
    const before = head.getAttribute("aria-sort");
    const isDescending = before ? before === "ascending" : isNumber;
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
    const body = table.tBodies[0];
    const compare = (a, b) => isNumber
      ? Number(a.cells[column].dataset.order) - Number(b.cells[column].dataset.order)
      : a.cells[column].textContent.localeCompare(b.cells[column].textContent, undefined, {numeric: true});
    const rows = [...body.rows].sort((a, b) => isDescending ? compare(b, a) : compare(a, b));
    body.append(...rows);
  };

  const foldAll = (button) => {
    const isOpen = button.dataset.fold === "open";
    for (const node of button.closest(".tree").querySelectorAll("details.node")) node.open = isOpen;
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.fold) foldAll(button);
    else if (button.parentElement.tagName === "TH") sortBy(button.parentElement);
  });

  // Charts: the values of every line at the place of the pointer.
  const written = (value, scale) => {
    if (scale === "percent") return (100 * value).toFixed(1) + "%";
    return String(Number(value.toPrecision(4)));
  };

  const nearest = (points, x) => {
    let low = 0, high = points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < x) low = middle; else high = middle;
    }
    return Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? points[low] : points[high];
  };

  const withClass = (tag, name) => {
    const element = document.createElement(tag);
    element.className = name;
    return element;
  };

  const prepare = (plot) => {
    const lines = [...plot.querySelectorAll("g.line")].map((group) => ({
      name: group.dataset.name,
      colour: group.classList[1],
      points: group.dataset.values.split(" ").map((pair) => pair.split(",").map(Number)),
    }));
    const low = Number(plot.dataset.xLow), high = Number(plot.dataset.xHigh);
    const drawing = plot.querySelector("svg");
    const cross = withClass("div", "cross"), box = withClass("div", "values");

    const show = (event) => {
      const area = drawing.getBoundingClientRect(), outer = plot.getBoundingClientRect();
      const share = Math.min(1, Math.max(0, (event.clientX - area.left) / area.width));
      const x = low + share * (high - low);
      const found = lines.map((line) => ({...line, point: nearest(line.points, x)}));
      const closest = found.reduce((a, b) => Math.abs(a.point[0] - x) <= Math.abs(b.point[0] - x) ? a : b);
      const at = area.left - outer.left + area.width * (closest.point[0] - low) / (high - low);
      cross.style.left = at + "px";
      box.replaceChildren(plot.dataset.xName + " " + written(closest.point[0]));
      for (const line of found) {
        const row = document.createElement("div"), name = document.createElement("span");
        name.append(withClass("i", "swatch " + line.colour), line.name);
        row.append(name, written(line.point[1], plot.dataset.scale));
        box.append(row);
      }
      plot.append(cross, box);
      const left = at > outer.width / 2 ? at - box.offsetWidth - 12 : at + 12;
      box.style.left = Math.max(0, left) + "px";
    };
    const hide = () => { cross.remove(); box.remove(); };
    plot.addEventListener("pointermove", show);
    plot.addEventListener("pointerdown", show);
    plot.addEventListener("pointerleave", hide);
  };
  for (const plot of document.querySelectorAll(".plot[data-x-low]")) prepare(plot);

  // On paper nothing can be unfolded.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details.run, details.record")].filter((fold) => !fold.open);
    for (const fold of opened) fold.open = true;
  });
  addEventListener("afterprint", () => {
    for (const fold of opened) fold.open = false;
  });
})();
