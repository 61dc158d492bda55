// Sorts and filters the comparison. The page is complete without it.
(() => {
  const table = document.getElementById("comparison-table");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const headings = [...table.tHead.rows[0].cells];

  const value = (row, column) => {
    const text = row.cells[column].dataset.value;
    const number = Number(text);
    return text === "" ? null : Number.isNaN(number) ? text : number;
  };
  // What has no value (not reached, no result) stays last either way.
  const order = (column, sign) => (a, b) => {
    const [x, y] = [value(a, column), value(b, column)];
    if (x === null || y === null) return (x === null) - (y === null);
    return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
  };
  headings.forEach((heading, column) => {
    if (heading.classList.contains("bars")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = heading.textContent;
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      table.classList.add("sorted");
      body.append(...[...rows].sort(order(column, down ? -1 : 1)));
    });
  });

  const input = document.getElementById("filter");
  const count = document.getElementById("count");
  input.closest("p").hidden = false;
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !wanted.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    count.textContent = wanted.length ? `${shown} of ${rows.length}` : "";
  });
})();
